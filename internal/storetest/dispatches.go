package storetest

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

func dispatches(t *testing.T, open func(t *testing.T) *Fixture) {
	for name, test := range map[string]func(*dispatchTest){
		"NothingSent":           dispatchNothingSent,
		"AddOnce":               dispatchAddOnce,
		"Life":                  dispatchLife,
		"Death":                 dispatchDeath,
		"StopWaiting":           dispatchStopWaiting,
		"StopRunning":           dispatchStopRunning,
		"Twins":                 dispatchTwins,
		"ReplyTo":               dispatchReplyTo,
		"Log":                   dispatchLog,
		"ReplyOfWorker":         dispatchReplyOfWorker,
		"Loads":                 dispatchLoads,
		"RollbackLeavesNothing": dispatchRollback,
	} {
		t.Run(name, func(t *testing.T) { test(&dispatchTest{open(t), t}) })
	}
	t.Run("PresenceHasOneOwner", func(t *testing.T) { presenceHasOneOwner(t, open(t)) })
	t.Run("PresenceRanges", func(t *testing.T) { presenceRanges(t, open(t)) })
	t.Run("PresenceRollback", func(t *testing.T) { presenceRolledBack(t, open(t)) })
}

// Before the first send there is nothing to read and nothing to stop.
func dispatchNothingSent(d *dispatchTest) {
	t := d.t
	_, found := d.find(1, start)
	require.False(t, found)
	require.Empty(t, d.copies(1))
	_, _, found = d.original(1)
	require.False(t, found)
	require.Empty(t, d.stop(1, start))
	d.do(func(ctx context.Context, q engine.Querier) error {
		left, err := d.Stores.Dispatches.Leave(ctx, q, "key", "owner")
		require.False(t, left)
		return err
	})
	require.Empty(t, presencesOf(t, d.Fixture, "", "", start))
}

// A job is recorded only once: its first record stays.
func dispatchAddOnce(d *dispatchTest) {
	id, _ := d.send("work", row.Sent{})
	d.do(func(ctx context.Context, q engine.Querier) error {
		added, err := d.Stores.Dispatches.Add(ctx, q, row.Sent{ID: id, Queue: "other"}, start.Add(time.Hour))
		require.False(d.t, added)
		return err
	})
	s := d.status(id)
	require.Equal(d.t, "work", s.Queue)
	require.True(d.t, start.Equal(s.SentAt))
}

// A job's status changes with its claim, retry and ack, and includes its result until the result expires.
func dispatchLife(d *dispatchTest) {
	t := d.t
	other := int64(0)
	d.do(func(ctx context.Context, q engine.Querier) error {
		other = d.insert(ctx, q, "work2", "{}")
		return nil
	})
	id, _ := d.send("work", row.Sent{})
	_, found := d.find(other, start)
	require.False(t, found, "it was not sent")
	s := d.status(id)
	require.True(t, start.Equal(s.SentAt))
	s.SentAt = time.Time{}
	require.Equal(t, row.DispatchStatus{RunID: id, Queue: "work", State: "pending"}, s)
	require.Equal(t, []int64{id}, d.copies(id))

	c := d.claim("work")
	s = d.status(id)
	require.Equal(t, "processing", s.State)
	require.Equal(t, "worker", s.Worker)
	require.EqualValues(t, 1, s.Attempts)
	require.NotZero(t, s.StartedAt)

	d.retry(c, "unavailable")
	s = d.status(id)
	require.Equal(t, "pending", s.State)
	require.Equal(t, "unavailable", s.LastError)
	require.NotZero(t, s.StartedAt)
	require.Zero(t, s.EndedAt)

	c = d.claim("work")
	d.saveResult(id, `{"sum":4}`, start.Add(time.Minute))
	d.ack(c)
	s = d.status(id)
	require.Empty(t, s.State)
	require.NotZero(t, s.EndedAt)
	require.False(t, s.Dead)
	require.False(t, s.Stopped)
	require.JSONEq(t, `{"sum":4}`, string(s.Output))
	require.Empty(t, d.copies(id))
	s, _ = d.find(id, start.Add(time.Minute))
	require.Nil(t, s.Output, "it has expired")
	require.Empty(t, d.stop(id, start))
	require.False(t, d.status(id).Stopped)
}

// A job without attempts left is dead.
func dispatchDeath(d *dispatchTest) {
	id, _ := d.send("work", row.Sent{})
	d.retry(d.claim("work"), "first")
	d.retry(d.claim("work"), "second")
	s := d.status(id)
	require.True(d.t, s.Dead)
	require.Empty(d.t, s.State)
	require.EqualValues(d.t, 2, s.Attempts)
	require.Equal(d.t, "second", s.LastError)
	require.NotZero(d.t, s.EndedAt)
	require.Empty(d.t, d.stop(id, start))
}

// A waiting job that is stopped ends immediately.
func dispatchStopWaiting(d *dispatchTest) {
	t := d.t
	id, _ := d.send("work", row.Sent{})
	require.Equal(t, []row.DispatchCopy{{ID: id, Queue: "work"}}, d.stop(id, start))
	s := d.status(id)
	require.True(t, s.Stopped)
	require.Zero(t, s.HeldUntil)
	require.Empty(t, s.State)
	require.NotZero(t, s.EndedAt)
	require.Empty(t, d.stop(id, start), "a second stop finds nothing")
	require.Empty(t, d.claims("work"))
	d.endStopped(id, start.Add(time.Hour))
	require.Equal(t, s, d.status(id), "no handler had it")
}

// A running job that is stopped is held until its handler has returned, or until its claim ends.
func dispatchStopRunning(d *dispatchTest) {
	t := d.t
	id, _ := d.send("work", row.Sent{})
	d.claim("work")
	d.endStopped(id, start)
	require.Zero(t, d.status(id).EndedAt, "it is not stopped")
	require.Equal(t, []row.DispatchCopy{{ID: id, Queue: "work", Worker: "worker"}}, d.stop(id, start.Add(time.Minute)))
	s := d.status(id)
	require.True(t, s.Stopped)
	require.True(t, start.Add(time.Minute).Equal(s.HeldUntil))
	ended := start.Add(2 * time.Second)
	d.endStopped(id, ended)
	s = d.status(id)
	require.Zero(t, s.HeldUntil)
	require.True(t, ended.Equal(s.EndedAt))
	d.endStopped(id, start.Add(time.Hour))
	require.Equal(t, s, d.status(id), "only once")

	late, _ := d.send("work", row.Sent{})
	d.claim("work")
	require.Equal(t, []row.DispatchCopy{{ID: late, Queue: "work"}}, d.stop(late, start.Add(time.Minute+time.Second)), "the claim has lapsed")
	require.Zero(t, d.status(late).HeldUntil)
}

// Only the job or a single copy of it in a legacy queue runs. The claimed copy stands for the job.
func dispatchTwins(d *dispatchTest) {
	t := d.t
	id, twins := d.send("work", row.Sent{}, "old", "older")
	require.ElementsMatch(t, append([]int64{id}, twins...), d.copies(id))
	require.True(t, d.status(id).Twins)
	sent, queue, found := d.original(twins[1])
	require.True(t, found)
	require.Equal(t, id, sent)
	require.Equal(t, "work", queue)
	_, _, found = d.original(id)
	require.False(t, found)

	c := d.claim("older")
	require.Equal(t, twins[1], c.ID)
	require.Empty(t, d.claims("work"))
	require.Empty(t, d.claims("old"))
	require.Equal(t, []int64{twins[1]}, d.copies(id))
	s := d.status(id)
	require.Equal(t, twins[1], s.RunID)
	require.Equal(t, "work", s.Queue)
	require.Equal(t, "processing", s.State)
	require.False(t, s.Twins)
	require.Zero(t, s.EndedAt)
	d.saveResult(twins[1], "1", start.Add(time.Minute))
	d.ack(c)
	s = d.status(id)
	require.NotZero(t, s.EndedAt)
	require.Equal(t, "1", string(s.Output))

	id, twins = d.send("work", row.Sent{}, "old")
	c = d.claim("work")
	require.Empty(t, d.claims("old"))
	d.ack(c)
	require.NotZero(t, d.status(id).EndedAt)
	require.Equal(t, id, d.status(id).RunID)
	_, _, found = d.original(twins[0])
	require.True(t, found)

	id, _ = d.send("work", row.Sent{}, "old")
	require.Len(t, d.stop(id, start), 2)
	require.Empty(t, d.claims("work"))
	require.Empty(t, d.claims("old"))
	require.True(t, d.status(id).Stopped)

	id, twins = d.send("work", row.Sent{}, "old")
	d.do(func(ctx context.Context, q engine.Querier) error {
		_, err := d.Stores.Jobs.Cancel(ctx, q, "old", twins[0], start)
		return err
	})
	require.Empty(t, d.copies(id), "a copy that waits is the job")
	require.NotZero(t, d.status(id).EndedAt)
}

// A job's outcome is enqueued once in its reply queue and published once on its reply topic, in the transaction that
// determines it.
func dispatchReplyTo(d *dispatchTest) {
	t := d.t
	s := row.Sent{ReplyQueue: "replies", ReplyTopic: "outcomes"}
	for _, c := range []struct {
		end  func(id int64)
		want string
	}{
		{func(id int64) {
			claim := d.claim("work")
			d.saveResult(id, `{"sum":4}`, start.Add(time.Minute))
			d.ack(claim)
		}, `{"id":%d,"state":"finished","output":{"sum":4}}`},
		{func(int64) {
			d.retry(d.claim("work"), "no")
			d.retry(d.claim("work"), "no")
		}, `{"id":%d,"state":"failed","error":"no"}`},
		{func(id int64) { d.stop(id, start) }, `{"id":%d,"state":"stopped"}`},
	} {
		id, _ := d.send("work", s)
		require.Empty(t, d.claims("replies"))
		before := d.events("outcomes")
		c.end(id)
		want := fmt.Sprintf(c.want, id)
		replies := d.claims("replies")
		require.Len(t, replies, 1, want)
		require.JSONEq(t, want, string(engine.PayloadText(replies[0].Payload)))
		require.Empty(t, d.claims("replies"))
		published := d.events("outcomes")[len(before):]
		require.Len(t, published, 1)
		require.JSONEq(t, want, published[0])
	}
}

// events returns the payloads of all of a topic's events, in order.
func (d *dispatchTest) events(topic string) (all []string) {
	d.t.Helper()
	if d.Later {
		d.publish(d.t, "other", nil, `1`) // numbers what was committed before
	}
	d.read(d.t, func(ctx context.Context, q engine.Querier) error {
		page, err := d.Stores.Streams.Read(ctx, q, row.EventRead{Selection: row.Selection{Topic: topic}, Through: row.Unbounded, Limit: 1000}, nil)
		for _, e := range page.Events {
			all = append(all, string(engine.PayloadText(e.Payload)))
		}
		return err
	})
	return all
}

// Each change to a job with a log is published.
func dispatchLog(d *dispatchTest) {
	t := d.t
	states := func() (all []string) {
		for _, e := range d.events("log") {
			var event struct {
				ID    int64
				Queue string
				State string
			}
			require.NoError(t, json.Unmarshal([]byte(e), &event))
			all = append(all, strconv.FormatInt(event.ID, 10)+" "+event.State)
		}
		return all
	}
	want := []string(nil)
	expect := func(id int64, steps ...string) {
		t.Helper()
		for _, step := range steps {
			want = append(want, strconv.FormatInt(id, 10)+" "+step)
		}
		require.Equal(t, want, states())
	}
	id, _ := d.send("work", row.Sent{Events: "log"})
	c := d.claim("work")
	expect(id, "started")
	d.retry(c, "no")
	expect(id, "dispatched")
	d.ack(d.claim("work"))
	expect(id, "started", "finished")

	id, _ = d.send("work", row.Sent{Events: "log"})
	d.claim("work")
	d.stop(id, start)
	expect(id, "started", "stopping")
	d.endStopped(id, start)
	expect(id, "stopped")

	id, _ = d.send("work", row.Sent{Events: "log"})
	d.retry(d.claim("work"), "no")
	d.retry(d.claim("work"), "no")
	expect(id, "started", "dispatched", "started", "failed")

	d.send("work", row.Sent{})
	d.ack(d.claim("work"))
	expect(id)
}

// A finished job without a result has the last reply that its worker enqueued.
func dispatchReplyOfWorker(d *dispatchTest) {
	t := d.t
	id, _ := d.send("work", row.Sent{})
	c := d.claim("work")
	for _, queue := range []string{"p:q:reply:", "p:reply:", "p:q:reply:9"} {
		d.do(func(ctx context.Context, q engine.Querier) error {
			d.insert(ctx, q, queue+strconv.FormatInt(id, 10), strconv.Quote(queue))
			return nil
		})
	}
	d.ack(c)
	s := d.status(id)
	require.Equal(t, row.DispatchReply{Queue: fmt.Sprintf("p:reply:%d", id), Payload: []byte(`"p:reply:"`), Text: true}, s.Reply)
	d.ack(d.claim(s.Reply.Queue))
	require.Equal(t, `"p:q:reply:"`, string(d.status(id).Reply.Payload))
	d.claim(fmt.Sprintf("p:q:reply:%d", id))
	require.NotEmpty(t, d.status(id).Reply.Queue, "a claimed reply can be read until it is acked")
	d.saveResult(id, "1", start.Add(time.Minute))
	require.Zero(t, d.status(id).Reply)
}

// A queue's load counts its waiting and running jobs, no matter which program added them.
func dispatchLoads(d *dispatchTest) {
	t := d.t
	for range 3 {
		d.send("a", row.Sent{})
	}
	d.send("b", row.Sent{})
	d.claim("a")
	d.claim("b")
	d.read(t, func(ctx context.Context, q engine.Querier) error {
		loads, err := d.Stores.Dispatches.Loads(ctx, q, []string{"a", "b", "c"})
		require.NoError(t, err)
		require.Len(t, loads, 3)
		require.True(t, start.Equal(loads[0].Oldest))
		loads[0].Oldest = time.Time{}
		require.Equal(t, []row.DispatchLoad{{Queue: "a", Depth: 2, InFlight: 1}, {Queue: "b", InFlight: 1}, {Queue: "c"}}, loads)
		busy, err := d.Stores.Dispatches.Occupancy(ctx, q, []string{"a", "c"}, []string{"a", "b", "c"})
		require.NoError(t, err)
		require.Equal(t, row.DispatchOccupancy{Waiting: map[string]int{"a": 2, "c": 0}, Workers: []string{"worker", "worker"}}, busy)
		return err
	})
}

// A transaction that is rolled back leaves nothing behind, no matter which method it called.
func dispatchRollback(d *dispatchTest) {
	t := d.t
	for range 2 { // the first time, this is also the database's first send
		var lost int64
		d.rollBack(t, func(ctx context.Context, q engine.Querier) error {
			require.NoError(t, d.Stores.Dispatches.Lock(ctx, q))
			lost = d.insert(ctx, q, "work", "{}")
			twin := d.insert(ctx, q, "old", "{}")
			added, err := d.Stores.Dispatches.Add(ctx, q, row.Sent{ID: lost, Queue: "work", ReplyQueue: "replies"}, start)
			require.True(t, added)
			require.NoError(t, err)
			return d.Stores.Dispatches.AddTwins(ctx, q, lost, []int64{twin})
		})
		_, found := d.find(lost, start)
		require.False(t, found)

		id, _ := d.send("work", row.Sent{ReplyQueue: "replies", Events: "log"}, "old")
		before, events := d.status(id), d.events("log")
		d.rollBack(t, func(ctx context.Context, q engine.Querier) error {
			live, err := d.Stores.Dispatches.Stop(ctx, q, id, start)
			require.Len(t, live, 2)
			return err
		})
		require.Equal(t, before, d.status(id))
		require.Equal(t, events, d.events("log"))
		require.Empty(t, d.claims("replies"))
		c := d.claim("work")
		before, events = d.status(id), d.events("log")
		d.rollBack(t, func(ctx context.Context, q engine.Querier) error {
			s := &row.Settlement{Claim: c, Outcome: row.Acked}
			_, err := d.Stores.Jobs.Step(ctx, q, row.Step{Settle: []*row.Settlement{s}}, start)
			require.Equal(t, row.Acked, s.Became)
			return err
		})
		require.Equal(t, before, d.status(id))
		require.Equal(t, events, d.events("log"))
		d.stop(id, start)
		before, events = d.status(id), d.events("log")
		d.rollBack(t, func(ctx context.Context, q engine.Querier) error {
			return d.Stores.Dispatches.EndStopped(ctx, q, id, start)
		})
		require.Equal(t, before, d.status(id))
		require.Equal(t, events, d.events("log"))
		require.Len(t, d.claims("replies"), 1)
	}
}
