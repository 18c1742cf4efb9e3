package dispatch_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
	"github.com/honker-go/honker/dispatch"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
)

// live returns the number of jobs in all queues, not counting dead letters.
func live(t testing.TB, db *honker.DB) (n int64) {
	t.Helper()
	queues, err := admin.Queues(context.Background(), db)
	require.NoError(t, err)
	for _, q := range queues {
		n += q.Ready.N + q.Scheduled.N + q.Running.N + q.Lapsed.N + q.Held.N + q.Expired.N
	}
	return n
}

func triggers(t testing.TB, db *honker.DB) int64 {
	return testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM sqlite_schema WHERE type = 'trigger' AND name GLOB '_honkerx_dispatch_*'`)
}

// Old and new actors together run each job exactly once.
func TestLegacy_DualPush_Once(t *testing.T) {
	db := honkertest.Open(t, nil)
	d := dispatch.New(db, &dispatch.Options{Legacy: dispatch.LegacyDualPush})
	var r ran
	for n := range 1000 {
		send(t, d, typeOsis, n)
	}
	require.EqualValues(t, 2000, live(t, db))
	testkit.Background(t, func(ctx context.Context) error {
		return honker.NewQueue[args](db, "hero:job:actor_queue:osis", nil).Work(ctx, func(_ context.Context, j *honker.Job[args]) error {
			r.note(j.Args.N, "old")
			return nil
		}, nil)
	})
	for _, i := range []string{"1", "2"} {
		start(t, d, osis(i), r.handler("new"), nil)
	}
	testkit.Eventually(t, testkit.Timeout, "nothing left", func() bool { return live(t, db) == 0 })
	require.Equal(t, 1000, r.len())
	require.Len(t, r.by, 1000)
	require.NotZero(t, r.counts()["old"])
	require.NotZero(t, r.counts()["new"])
	require.NoError(t, db.Check(context.Background()))
}

// A foreign worker may claim either copy with plain SQL. The other copy is then deleted, and the status
// and the reply belong to the job that was sent.
func TestLegacy_DualPush_ForeignClaim(t *testing.T) {
	testkit.FileOnly(t)
	db := honkertest.Open(t, nil)
	d := dispatch.New(db, &dispatch.Options{Legacy: dispatch.LegacyDualPush})
	ctx := testkit.Context(t, testkit.Timeout)
	id := send(t, d, typeOsis, 1)
	replied := make(chan int, 1)
	go func() {
		n, err := dispatch.Await[int](ctx, d, id)
		if err == nil {
			replied <- n
		}
		close(replied)
	}()
	foreign := testkit.OpenPool(t, pathOf(t, db))
	_, err := foreign.Exec(`UPDATE _honker_live SET state = 'processing', worker_id = 'python', claim_expires_at = unixepoch() + 300, attempts = attempts + 1
WHERE queue = 'hero:job:actor_queue:osis' AND state = 'pending'`)
	require.NoError(t, err)
	require.EqualValues(t, 1, live(t, db))
	s, err := d.Status(ctx, id)
	require.NoError(t, err)
	require.Equal(t, dispatch.Started, s.State)
	require.Equal(t, "python", s.Worker)
	require.NoError(t, db.Check(ctx))
	_, err = foreign.Exec(`INSERT INTO _honker_results (job_id, value) SELECT id, '42' FROM _honker_live`)
	require.NoError(t, err)
	_, err = foreign.Exec(`DELETE FROM _honker_live`)
	require.NoError(t, err)
	require.Equal(t, 42, <-replied)
	waitState(t, d, id, dispatch.Finished)
	require.NoError(t, db.Check(ctx))
}

// pathOf returns the path of db's file.
func pathOf(t testing.TB, db *honker.DB) (path string) {
	t.Helper()
	require.NoError(t, db.SQL().QueryRow(`SELECT file FROM pragma_database_list WHERE name = 'main'`).Scan(&path))
	return path
}

// An actor that claims a copy in a legacy queue gets the task of the original job.
func TestLegacy_Claimed_Task(t *testing.T) {
	db := honkertest.Open(t, nil)
	d := dispatch.New(db, &dispatch.Options{Legacy: dispatch.LegacyDualPush})
	ctx := testkit.Context(t, testkit.Timeout)
	id := send(t, d, typeOsis, 1)
	// Simulate another version of the library that claimed the copy and was killed.
	jobs, err := honker.NewQueue[args](db, "hero:job:actor_queue:osis", &honker.QueueOptions{Lease: time.Second}).Claim(ctx, "old", 1)
	require.NoError(t, err)
	require.Len(t, jobs, 1)
	require.NotEqual(t, id, jobs[0].ID)
	tasks := make(chan *dispatch.Task[args], 1)
	start(t, d, osis("1"), func(_ context.Context, task *dispatch.Task[args]) (any, error) {
		tasks <- task
		return "new", nil
	}, nil)
	out, err := dispatch.Await[string](ctx, d, id)
	require.NoError(t, err)
	require.Equal(t, "new", out)
	task := <-tasks
	require.Equal(t, id, task.ID)
	require.Equal(t, typeOsis, task.Target)
	require.Equal(t, 2, task.Attempt)
}

// SetLegacy changes the queues that are written and read while actors run.
func TestLegacy_SetLegacy_Running(t *testing.T) {
	db := honkertest.Open(t, nil)
	d := dispatch.New(db, nil)
	ctx := testkit.Context(t, testkit.Timeout)
	old := honker.NewQueue[args](db, "hero:job:actor_queue:osis", nil)
	began, release := make(chan int, 100), make(chan struct{})
	start(t, d, osis("1"), blocked(began, release), &dispatch.ActorOptions{Workers: 2, DrainTimeout: time.Millisecond})
	running := send(t, d, typeOsis, 1)
	require.Equal(t, 1, <-began)
	legacy, err := old.Enqueue(ctx, args{2})
	require.NoError(t, err)
	_, err = d.Ping(ctx, typeOsis)
	require.NoError(t, err)
	require.Empty(t, began, "off: the old queue is not read")

	require.NoError(t, d.SetLegacy(dispatch.LegacyReadOnly))
	require.Equal(t, 2, <-began, "now it is, and the handler that runs goes on")
	waitState(t, d, running, dispatch.Started)
	close(release)
	_, err = honker.WaitResult[int](ctx, db, legacy)
	require.NoError(t, err)
	waitState(t, d, running, dispatch.Finished)
	send(t, d, dispatch.Target{Type: "none"}, 3)
	require.EqualValues(t, 1, live(t, db), "read only: nothing is sent there")

	require.NoError(t, d.SetLegacy(dispatch.LegacyDualPush))
	send(t, d, dispatch.Target{Type: "none"}, 3)
	require.EqualValues(t, 3, live(t, db))
	require.NoError(t, d.SetLegacy(dispatch.LegacyOff))
	send(t, d, dispatch.Target{Type: "none"}, 3)
	require.EqualValues(t, 4, live(t, db))
}

// Jobs for an instance are not sent to old actors, unless Options.LegacyQueues returns a queue.
func TestLegacy_Queues(t *testing.T) {
	db := honkertest.Open(t, nil)
	one := dispatch.Target{Type: "osis", Instance: "1"}
	d := dispatch.New(db, &dispatch.Options{Legacy: dispatch.LegacyDualPush})
	send(t, d, one, 1)
	require.EqualValues(t, 1, live(t, db))
	d = dispatch.New(db, &dispatch.Options{Legacy: dispatch.LegacyDualPush, LegacyQueues: func(to dispatch.Target) []string {
		k := dispatch.Keys{}
		return []string{k.LegacyJob(to.Type + "_" + to.Instance), k.LegacyWorkQueue(to.Type), k.LegacyWorkQueue(to.Type)}
	}})
	id := send(t, d, one, 2)
	require.EqualValues(t, 4, live(t, db))
	_, err := honker.NewQueue[args](db, "hero:job:osis_1", nil).Claim(context.Background(), "old", 1)
	require.NoError(t, err)
	require.EqualValues(t, 2, live(t, db), "both other copies are gone")
	waitState(t, d, id, dispatch.Started)
}

// If a copy is cancelled or becomes a dead letter, the job ends the same way.
func TestLegacy_Copy_Cancelled(t *testing.T) {
	testkit.FileOnly(t)
	db := honkertest.Open(t, nil)
	d := dispatch.New(db, &dispatch.Options{Legacy: dispatch.LegacyDualPush})
	ctx := context.Background()
	send(t, d, typeOsis, 1)
	old := testkit.QueryInt(t, db.SQL(), `SELECT id FROM _honker_live WHERE queue = 'hero:job:actor_queue:osis'`)
	cancelled, err := honker.NewQueue[args](db, "hero:job:actor_queue:osis", nil).Cancel(ctx, old)
	require.NoError(t, err)
	require.True(t, cancelled)
	require.Zero(t, live(t, db))
	require.NoError(t, db.Check(ctx))
}

// boundTo is a codec that decodes a payload only in the queue for which it was encoded.
type boundTo struct{}

func (boundTo) Encode(_ context.Context, queue string, payload json.RawMessage) (json.RawMessage, error) {
	return json.Marshal(map[string][]byte{queue: payload})
}

func (boundTo) Decode(_ context.Context, queue string, stored json.RawMessage) (json.RawMessage, error) {
	var made map[string][]byte
	err := json.Unmarshal(stored, &made)
	return made[queue], err
}

// The payload is encoded separately for the queue of each copy. Actors and old workers can decode it.
func TestLegacy_DualPush_Codec(t *testing.T) {
	testkit.FileOnly(t)
	db := honkertest.Open(t, &honker.Options{Codec: boundTo{}})
	d := dispatch.New(db, &dispatch.Options{Legacy: dispatch.LegacyDualPush})
	for n := range 2 {
		send(t, d, typeOsis, n)
	}
	require.EqualValues(t, 4, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_live WHERE payload LIKE '{"' || queue || '":%'`))
	old := testkit.ClaimOneAs(t, honker.NewQueue[args](db, "hero:job:actor_queue:osis", nil), "old")
	require.Equal(t, 0, old.Args.N)
	require.NoError(t, old.Ack(t.Context()))
	var r ran
	start(t, d, osis("1"), r.handler("new"), nil)
	testkit.Eventually(t, testkit.Timeout, "nothing left", func() bool { return live(t, db) == 0 })
	require.Equal(t, 1, r.len())
}
