package dispatch_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/dispatch"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
)

// claimForeign claims the next job of a queue as an actor in another language would.
func claimForeign(t *testing.T, b *testkit.Binding, queue string) testkit.BindingJob {
	t.Helper()
	jobs := b.Claim(queue, "python", 1, 300)
	require.Len(t, jobs, 1)
	return jobs[0]
}

// An actor in another language enqueues its result in the reply queue and acks, in either order. Every
// Await and the status then return the result.
func TestAwait_ReplyQueue(t *testing.T) {
	testkit.FileOnly(t)
	db, b := testkit.OpenWithBinding(t)
	d := dispatch.New(db, nil)
	ctx := testkit.Context(t, testkit.Timeout)
	for _, ackFirst := range []bool{false, true} {
		id := send(t, d, typeOsis, 7)
		job := claimForeign(t, b, d.Keys().Work(typeOsis))
		require.Equal(t, id, job.ID)
		replied := make(chan error, 1)
		go func() {
			n, err := dispatch.Await[int](ctx, d, id)
			if err == nil && n != 49 {
				t.Errorf("the reply is %d", n)
			}
			replied <- err
		}()
		steps := []func(){
			func() { b.Enqueue(d.Keys().Reply(id), "49") },
			func() { require.EqualValues(t, 1, b.Ack(id, "python")) },
		}
		if ackFirst {
			steps[0], steps[1] = steps[1], steps[0]
		}
		for _, step := range steps {
			step()
		}
		require.NoError(t, <-replied)
		n, err := dispatch.Await[int](ctx, d, id)
		require.NoError(t, err)
		require.Equal(t, 49, n)
		s := waitState(t, d, id, dispatch.Finished)
		require.JSONEq(t, "49", string(s.Output))
	}
}

// Commits between the ack and the reply do not end Await's grace period.
func TestAwait_ReplyQueue_CommitsBetween(t *testing.T) {
	testkit.FileOnly(t)
	db, b := testkit.OpenWithBinding(t)
	d := dispatch.New(db, nil)
	ctx := testkit.Context(t, testkit.Timeout)
	id := send(t, d, typeOsis, 7)
	claimForeign(t, b, d.Keys().Work(typeOsis))
	replied := make(chan error, 1)
	go func() {
		_, err := dispatch.Await[int](ctx, d, id)
		replied <- err
	}()
	b.Ack(id, "python")
	for range 5 { // within the grace period, also on a slow machine
		b.Enqueue("elsewhere", "1")
	}
	b.Enqueue(d.Keys().Reply(id), "49")
	require.NoError(t, <-replied)
}

// An old actor replies with its own copy's ID, in either of the reply queues.
func TestAwait_ReplyQueue_Legacy(t *testing.T) {
	testkit.FileOnly(t)
	db, b := testkit.OpenWithBinding(t)
	d := dispatch.New(db, &dispatch.Options{Legacy: dispatch.LegacyDualPush})
	ctx := testkit.Context(t, testkit.Timeout)
	for _, reply := range []func(id int64) string{d.Keys().Reply, d.Keys().LegacyReply} {
		id := send(t, d, typeOsis, 7)
		job := claimForeign(t, b, d.Keys().LegacyActorQueue("osis"))
		require.NotEqual(t, id, job.ID)
		b.Enqueue(reply(job.ID), `{"n": 49}`)
		b.Ack(job.ID, "python")
		got, err := dispatch.Await[map[string]int](ctx, d, id)
		require.NoError(t, err)
		require.Equal(t, map[string]int{"n": 49}, got)
	}
}

// The last of several replies is the result, unless a result was saved. Replies to a failed job are
// ignored.
func TestAwait_ReplyQueue_Which(t *testing.T) {
	testkit.FileOnly(t)
	db, b := testkit.OpenWithBinding(t)
	d := dispatch.New(db, nil)
	ctx := testkit.Context(t, testkit.Timeout)
	id := send(t, d, typeOsis, 7)
	claimForeign(t, b, d.Keys().Work(typeOsis))
	b.Enqueue(d.Keys().Reply(id), "1")
	b.Enqueue(d.Keys().Reply(id), "2")
	require.Equal(t, dispatch.Started, waitState(t, d, id, dispatch.Started).State)
	b.Ack(id, "python")
	n, err := dispatch.Await[int](ctx, d, id)
	require.NoError(t, err)
	require.Equal(t, 2, n)
	require.Len(t, b.Claim(d.Keys().Reply(id), "caller", 2, 300), 2)
	n, err = dispatch.Await[int](ctx, d, id)
	require.NoError(t, err, "another caller has claimed them and not acked yet")
	require.Equal(t, 2, n)
	b.SaveResult(id, 3)
	n, err = dispatch.Await[int](ctx, d, id)
	require.NoError(t, err)
	require.Equal(t, 3, n)

	id = send(t, d, typeOsis, 7, dispatch.With(honker.MaxAttempts(1)))
	claimForeign(t, b, d.Keys().Work(typeOsis))
	b.Enqueue(d.Keys().Reply(id), "1")
	b.Fail(id, "python", "broken")
	_, err = dispatch.Await[int](ctx, d, id)
	var failed *honker.JobFailedError
	require.ErrorAs(t, err, &failed)
}

// If the worker only acks, Await returns ErrNoResult rather than a zero value.
func TestAwait_NoResult(t *testing.T) {
	testkit.FileOnly(t)
	db, b := testkit.OpenWithBinding(t)
	d := dispatch.New(db, nil)
	ctx := testkit.Context(t, testkit.Timeout)
	id := send(t, d, typeOsis, 7)
	claimForeign(t, b, d.Keys().Work(typeOsis))
	b.Ack(id, "python")
	_, err := dispatch.Await[int](ctx, d, id)
	require.ErrorIs(t, err, dispatch.ErrNoResult)
	require.Equal(t, dispatch.Finished, waitState(t, d, id, dispatch.Finished).State)
	b.Enqueue(d.Keys().Reply(id), "49") // after the grace period
	n, err := dispatch.Await[int](ctx, d, id)
	require.NoError(t, err)
	require.Equal(t, 49, n)

	testkit.Background(t, func(ctx context.Context) error {
		return honker.NewQueue[args](db, d.Keys().Work(typeOsis), nil).Work(ctx, func(context.Context, *honker.Job[args]) error { return nil }, nil)
	})
	_, err = dispatch.Call[int](ctx, d, typeOsis, args{7})
	require.ErrorIs(t, err, dispatch.ErrNoResult)
}

// Await fails if a reply is malformed or has the wrong type. The status can still be read.
func TestAwait_ReplyQueue_Unreadable(t *testing.T) {
	testkit.FileOnly(t)
	db, b := testkit.OpenWithBinding(t)
	d := dispatch.New(db, nil)
	for _, payload := range []string{"not JSON", `"text"`} {
		id := send(t, d, typeOsis, 7)
		claimForeign(t, b, d.Keys().Work(typeOsis))
		b.Change(`INSERT INTO _honker_live (queue, payload) VALUES (?, ?)`, d.Keys().Reply(id), payload)
		b.Ack(id, "python")
		_, err := dispatch.Await[int](t.Context(), d, id)
		require.ErrorContains(t, err, "not decode", "%v", payload)
		waitState(t, d, id, dispatch.Finished)
	}
}

// If Reply is set, the handler's result is enqueued in the reply queue in the transaction that ends
// the task. Otherwise nothing is enqueued.
func TestActor_Reply(t *testing.T) {
	testkit.FileOnly(t)
	db, b := testkit.OpenWithBinding(t)
	d := dispatch.New(db, nil)
	square := func(ctx context.Context, task *dispatch.Task[args]) (any, error) {
		if task.Args.N < 0 {
			return nil, honker.Reject(testkit.ErrCause)
		}
		if task.Args.N%2 == 0 {
			return nil, nil // the output was passed to FinishTx
		}
		return task.Args.N * task.Args.N, nil
	}
	finishing := func(ctx context.Context, task *dispatch.Task[args]) (any, error) {
		if task.Args.N%2 == 0 {
			return nil, db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error { return task.FinishTx(ctx, tx, task.Args.N*task.Args.N) })
		}
		return square(ctx, task)
	}
	stop := start(t, d, osis("1"), finishing, &dispatch.ActorOptions{Reply: true})
	for n, want := range map[string]string{"7": "49", "8": "64"} {
		id := b.Enqueue(d.Keys().Work(typeOsis), `{"N": `+n+`}`)
		testkit.Eventually(t, testkit.Timeout, "replied", func() bool {
			jobs := b.Claim(d.Keys().Reply(id), "caller", 2, 300)
			if len(jobs) == 0 {
				return false
			}
			require.Len(t, jobs, 1)
			require.JSONEq(t, want, jobs[0].Payload)
			require.EqualValues(t, 1, b.Ack(jobs[0].ID, "caller"))
			return true
		})
	}
	// The result is saved as well, and a rejected task sends no reply.
	ctx := testkit.Context(t, testkit.Timeout)
	n, err := dispatch.Call[int](ctx, d, typeOsis, args{9})
	require.NoError(t, err)
	require.Equal(t, 81, n)
	_, err = dispatch.Call[int](ctx, d, typeOsis, args{-1})
	require.Error(t, err)
	require.EqualValues(t, 1, live(t, db), "the reply of the Call")
	require.NoError(t, stop())

	start(t, d, osis("2"), finishing, nil)
	_, err = dispatch.Call[int](ctx, d, typeOsis, args{9})
	require.NoError(t, err)
	_, err = dispatch.Call[int](ctx, d, typeOsis, args{10})
	require.NoError(t, err)
	require.EqualValues(t, 1, live(t, db))
}

// Saving a reply is retried while the writer is busy. The handler does not run again.
func TestActor_Reply_Busy(t *testing.T) {
	testkit.FileOnly(t)
	path, _ := testkit.OpenShared(t)
	log := new(testkit.Log)
	db, err := honker.Open(t.Context(), path, &honker.Options{BusyTimeout: 20 * time.Millisecond, Logger: slog.New(slog.NewTextHandler(log, nil))})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	d := dispatch.New(db, nil)
	ran := make(chan int, 10)
	hold, held := make(chan struct{}), make(chan struct{})
	start(t, d, osis("1"), func(_ context.Context, task *dispatch.Task[args]) (any, error) {
		ran <- task.Attempt
		close(hold)
		<-held
		return 49, nil
	}, &dispatch.ActorOptions{Reply: true})
	id := send(t, d, typeOsis, 7)
	<-hold
	release := testkit.HoldWriter(t, path)
	close(held)
	testkit.Eventually(t, testkit.Timeout, "it has met the writer", func() bool { return log.Times("a reply could not be saved, retrying") > 0 })
	release()
	n, err := dispatch.Await[int](testkit.Context(t, testkit.Timeout), d, id)
	require.NoError(t, err)
	require.Equal(t, 49, n)
	require.Len(t, ran, 1)
	require.EqualValues(t, 1, testkit.QueryInt(t, db.SQL(), testkit.CountQueue, d.Keys().Reply(id)))
}

// Replies are encoded and decoded with the DB's codec.
func TestActor_Reply_Codec(t *testing.T) {
	db := honkertest.Open(t, &honker.Options{Codec: reversed{}})
	d := dispatch.New(db, nil)
	start(t, d, osis("1"), func(context.Context, *dispatch.Task[args]) (any, error) { return "abc", nil }, &dispatch.ActorOptions{Reply: true})
	ctx := testkit.Context(t, testkit.Timeout)
	id := send(t, d, typeOsis, 7)
	_, err := dispatch.Await[string](ctx, d, id)
	require.NoError(t, err)
	replies := honker.NewQueue[string](db, d.Keys().Reply(id), nil)
	testkit.Exec(t, db, testkit.ForgetResults)
	got, err := dispatch.Await[string](ctx, d, id)
	require.NoError(t, err)
	require.Equal(t, "abc", got)
	jobs := testkit.Claim(t, replies, 1)
	require.Len(t, jobs, 1)
	stored, err := testkit.Rows(db.SQL(), testkit.PayloadOf, jobs[0].ID)
	require.NoError(t, err)
	require.Equal(t, []string{`"cba"`}, stored)
}

// Await fails immediately if the codec cannot decode the reply. The status can still be read.
func TestAwait_ReplyQueue_CodecFails(t *testing.T) {
	testkit.FileOnly(t)
	path, db := testkit.OpenShared(t)
	keyless, err := honker.Open(t.Context(), path, &honker.Options{Codec: keyless{}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, keyless.Close()) })
	b := testkit.OpenBinding(t, path)
	id := send(t, dispatch.New(db, nil), typeOsis, 7)
	d := dispatch.New(keyless, nil)
	claimForeign(t, b, d.Keys().Work(typeOsis))
	b.Enqueue(d.Keys().Reply(id), "49")
	b.Ack(id, "python")
	_, err = dispatch.Await[int](t.Context(), d, id)
	require.ErrorIs(t, err, testkit.ErrCause)
	require.NotErrorIs(t, err, dispatch.ErrNoResult)
	require.Equal(t, dispatch.Finished, waitState(t, d, id, dispatch.Finished).State)
}

// keyless is a codec whose Decode always fails.
type keyless struct{}

func (keyless) Encode(_ context.Context, _ string, p json.RawMessage) (json.RawMessage, error) {
	return p, nil
}

func (keyless) Decode(context.Context, string, json.RawMessage) (json.RawMessage, error) {
	return nil, testkit.ErrCause
}

// reversed is a codec that reverses JSON strings.
type reversed struct{}

func (reversed) Encode(_ context.Context, _ string, p json.RawMessage) (json.RawMessage, error) {
	var s string
	if json.Unmarshal(p, &s) != nil {
		return p, nil
	}
	out := []byte(s)
	for i, j := 0, len(out)-1; i < j; i, j = i+1, j-1 {
		out[i], out[j] = out[j], out[i]
	}
	return json.Marshal(string(out))
}

func (c reversed) Decode(ctx context.Context, queue string, p json.RawMessage) (json.RawMessage, error) {
	return c.Encode(ctx, queue, p)
}

// Maintain deletes unread replies. Replies to dispatch jobs are deleted together with the job's
// status, and other replies after an hour. Queues whose names only resemble reply queues are not
// changed.
func TestMaintain_Replies(t *testing.T) {
	testkit.FileOnly(t)
	for _, prefix := range []string{"", "app/"} {
		db, b := testkit.OpenWithBinding(t)
		d := dispatch.New(db, &dispatch.Options{Prefix: prefix})
		maintain := func() { require.NoError(t, db.Maintain(t.Context(), &honker.MaintainOptions{Once: true})) }
		id := send(t, d, typeOsis, 7)
		claimForeign(t, b, d.Keys().Work(typeOsis))
		b.Enqueue(d.Keys().Reply(id), "1")
		b.Enqueue(d.Keys().LegacyReply(100_000), "2")
		b.Enqueue(d.Keys().Reply(100_001), "3")
		like := []string{strings.TrimSuffix(d.Keys().Reply(1), "1") + "x", d.Keys().Reply(1) + ":x", "reply:1", "other:q:reply:1"}
		for _, queue := range like {
			b.Enqueue(queue, "4")
		}
		testkit.Exec(t, db, `UPDATE _honker_live SET created_at = created_at - 3700 WHERE queue NOT GLOB '*100001'`)
		maintain()
		queues, err := testkit.Rows(db.SQL(), `SELECT queue FROM _honker_live ORDER BY queue`)
		require.NoError(t, err)
		require.ElementsMatch(t, append(like, d.Keys().Reply(id), d.Keys().Reply(100_001), d.Keys().Work(typeOsis)), queues)

		b.Ack(id, "python")
		maintain()
		n, err := dispatch.Await[int](testkit.Context(t, testkit.Timeout), d, id)
		require.NoError(t, err, "an hour has not passed since the end")
		require.Equal(t, 1, n)
		testkit.Exec(t, db, `UPDATE _honkerx_dispatch_jobs SET ended_ms = 1`)
		send(t, d, dispatch.Target{Type: "none"}, 1) // the prefix is still in use
		maintain()
		maintain()
		require.EqualValues(t, len(like)+2, live(t, db))
		require.NoError(t, db.Check(t.Context()))
	}
}
