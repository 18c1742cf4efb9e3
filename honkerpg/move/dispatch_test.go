//go:build unix

package move_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
	"github.com/honker-go/honker/dispatch"
	"github.com/honker-go/honker/honkerpg/move"
)

var (
	osis      = dispatch.Target{Type: "osis"}
	workQueue = dispatch.Keys{}.Work(osis)
)

// dispatcher sends each job to an old queue too, and logs.
func dispatcher(db *honker.DB) *dispatch.Dispatcher {
	return dispatch.New(db, &dispatch.Options{Legacy: dispatch.LegacyDualPush, Log: true})
}

func sent(t *testing.T, d *dispatch.Dispatcher, n int, opts ...dispatch.SendOption) int64 {
	t.Helper()
	id, err := d.Send(t.Context(), osis, n, opts...)
	require.NoError(t, err)
	return id
}

func statusOf(t *testing.T, d *dispatch.Dispatcher, id int64) dispatch.Status {
	t.Helper()
	s, err := d.Status(t.Context(), id)
	require.NoError(t, err)
	return s
}

// act runs an actor that answers with ten times the argument until the test ends.
func act(t *testing.T, d *dispatch.Dispatcher) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	answer := func(_ context.Context, task *dispatch.Task[int]) (any, error) { return task.Args * 10, nil }
	go func() {
		done <- dispatch.NewActor(d, dispatch.Identity{Type: "osis", Instance: "1"}, answer, nil).Run(ctx)
	}()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-done)
	})
}

func await(t *testing.T, d *dispatch.Dispatcher, id int64) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	n, err := dispatch.Await[int](ctx, d, id)
	require.NoError(t, err)
	return n
}

// claimSent claims the job of the actors' queue.
func claimSent(t *testing.T, db *honker.DB) *honker.Job[int] {
	t.Helper()
	jobs, err := honker.NewQueue[int](db, workQueue, nil).Claim(t.Context(), "w", 1)
	require.NoError(t, err)
	require.Len(t, jobs, 1)
	return jobs[0]
}

// A sent job moves with its status, its copies, its log and the places of its outcome, which it gets once. A job that has
// failed can be sent again on the server.
func TestRun_Dispatch(t *testing.T) {
	t.Parallel()
	from, to := openFile(t), openServer(t)
	old, d := dispatcher(from), dispatcher(to)
	retried := sent(t, old, 1)
	require.NoError(t, claimSent(t, from).Retry(t.Context(), 0, errors.New("first")))
	dead := sent(t, old, 2, dispatch.With(honker.Priority(1)))
	require.NoError(t, claimSent(t, from).Reject(t.Context(), errors.New("never")))
	waiting := sent(t, old, 3, dispatch.ReplyTo("outcomes"), dispatch.ReplyToStream("outcomes"))
	after, err := honker.NewQueue[int](from, workQueue, nil).Enqueue(t.Context(), 4, honker.After(waiting))
	require.NoError(t, err)
	before := map[int64]dispatch.Status{}
	for _, id := range []int64{retried, dead, waiting} {
		before[id] = statusOf(t, old, id)
	}
	ended := sent(t, old, 5, dispatch.With(honker.Priority(1)))
	job := claimSent(t, from)
	require.NoError(t, job.SetResult(50))
	require.NoError(t, job.Ack(t.Context()))

	r := run(t, from, to, nil)
	require.EqualValues(t, 4, r.Jobs) // two copies of the last job, the retried job, and the job after it
	require.EqualValues(t, 1, r.Dead)
	require.Empty(t, r.Notes)
	empty(t, r)
	for id, want := range before {
		require.Equal(t, want, statusOf(t, d, id))
		_, err := old.Status(t.Context(), id)
		require.ErrorIs(t, err, honker.ErrNotFound)
	}
	require.Equal(t, 50, await(t, old, ended)) // a result stays

	require.NoError(t, from.Check(t.Context()))
	require.NoError(t, to.Check(t.Context()))
	act(t, d)
	for id, want := range map[int64]int{retried: 10, waiting: 30} {
		require.Equal(t, want, await(t, d, id))
	}
	again, err := admin.Requeue(t.Context(), to, admin.JobFilter{IDs: []int64{dead}}, nil)
	require.NoError(t, err)
	require.EqualValues(t, 1, again.Changed)
	require.Equal(t, 20, await(t, d, dead))
	require.Eventually(t, func() bool {
		_, err := to.Job(t.Context(), after)
		return errors.Is(err, honker.ErrNotFound)
	}, time.Minute, 10*time.Millisecond)

	outcome := dispatch.Outcome[int]{ID: waiting, State: dispatch.Finished, Output: 30}
	replies, err := honker.NewQueue[dispatch.Outcome[int]](to, "outcomes", nil).Claim(t.Context(), "w", 2)
	require.NoError(t, err)
	require.Len(t, replies, 1)
	require.Equal(t, outcome, replies[0].Args)
	var events []dispatch.Outcome[int]
	for e, err := range honker.NewStream[dispatch.Outcome[int]](to, "outcomes", nil).Read(t.Context(), 0) {
		require.NoError(t, err)
		events = append(events, e.Data)
	}
	require.Equal(t, []dispatch.Outcome[int]{outcome}, events)
	states := func() map[int64][]dispatch.State {
		all := map[int64][]dispatch.State{}
		for e, err := range honker.NewStream[dispatch.Event](to, "hero:events", nil).Read(t.Context(), 0) {
			require.NoError(t, err)
			all[e.Data.ID] = append(all[e.Data.ID], e.Data.State)
		}
		return all
	}
	// A server numbers an event, which is then read, after its commit.
	require.Eventually(t, func() bool { return len(states()[dead]) == 6 }, time.Minute, 10*time.Millisecond)
	require.Equal(t, map[int64][]dispatch.State{
		retried: {dispatch.Dispatched, dispatch.Started, dispatch.Dispatched, dispatch.Started, dispatch.Finished},
		dead:    {dispatch.Dispatched, dispatch.Started, dispatch.Failed, dispatch.Dispatched, dispatch.Started, dispatch.Finished},
		waiting: {dispatch.Dispatched, dispatch.Started, dispatch.Finished},
		ended:   {dispatch.Dispatched, dispatch.Started, dispatch.Finished},
	}, states())
}

// A sent job runs in the file while an actor of the file has it, and neither of its copies moves before.
func TestRun_Dispatch_Running(t *testing.T) {
	t.Parallel()
	from, to := openFile(t), openServer(t)
	old, d := dispatcher(from), dispatcher(to)
	id := sent(t, old, 1)
	job := claimSent(t, from)
	require.Zero(t, run(t, from, to, &move.Options{Once: true}).Jobs)
	require.NoError(t, job.Retry(t.Context(), 0, errors.New("once more")))
	require.EqualValues(t, 1, run(t, from, to, nil).Jobs)
	require.Equal(t, 1, statusOf(t, d, id).Attempt)
}

// A job and its copies move together, or stay together.
func TestRun_Dispatch_Unlisted(t *testing.T) {
	t.Parallel()
	from, to := openFile(t), openServer(t)
	old, d := dispatcher(from), dispatcher(to)
	id := sent(t, old, 1)
	r := run(t, from, to, &move.Options{Queues: []string{workQueue}})
	require.Zero(t, r.Jobs)
	require.Contains(t, r.Notes[0], "2 jobs are linked to jobs of queues that are not moved")
	r = run(t, from, to, &move.Options{Queues: []string{workQueue, dispatch.Keys{}.LegacyActorQueue(osis.Type)}})
	require.EqualValues(t, 2, r.Jobs)
	require.Equal(t, dispatch.Dispatched, statusOf(t, d, id).State)
}

// A mover that is killed leaves a parcel with sent jobs. The next brings it, and each job runs once.
func TestRun_Dispatch_Resumed(t *testing.T) {
	t.Parallel()
	for name, arrived := range map[string]bool{"taken": false, "arrived": true} {
		t.Run(name, func(t *testing.T) {
			from, to := openFile(t), openServer(t)
			run(t, from, to, nil)
			old, d := dispatcher(from), dispatcher(to)
			id := sent(t, old, 7, dispatch.ReplyTo("outcomes"))
			halted(t, from, to, arrived)
			_, err := old.Status(t.Context(), id)
			require.ErrorIs(t, err, honker.ErrNotFound)
			run(t, from, to, nil)
			act(t, d)
			require.Equal(t, 70, await(t, d, id))
			replies, err := honker.NewQueue[dispatch.Outcome[int]](to, "outcomes", nil).Claim(t.Context(), "w", 2)
			require.NoError(t, err)
			require.Len(t, replies, 1)
		})
	}
}

// In a schema that is in use, a sent job gets another ID with its status. A job whose unique key is taken there is kept.
func TestRun_Dispatch_IntoUsed(t *testing.T) {
	t.Parallel()
	from, to := openFile(t), openServer(t)
	old, d := dispatcher(from), dispatcher(to)
	id := sent(t, old, 1, dispatch.With(honker.Unique("u", nil)))
	own := sent(t, d, 2, dispatch.With(honker.Unique("u", nil)))
	r := run(t, from, to, &move.Options{IntoUsed: true})
	require.EqualValues(t, 2, r.Jobs)
	require.Len(t, r.Lost, 2)
	require.False(t, r.Lost[0].Dropped || r.Lost[1].Dropped)
	shifted := id + own + 1 // the schema has the job and its copy
	require.Equal(t, dispatch.Dispatched, statusOf(t, d, shifted).State)
	act(t, d)
	require.Equal(t, 10, await(t, d, shifted))
	require.Equal(t, 20, await(t, d, own))
}

// A reply that a worker of another language has enqueued is a result. It stays for the caller in the file, and cannot be
// taken for the reply to a job of the schema with its ID.
func TestRun_Dispatch_Replies(t *testing.T) {
	t.Parallel()
	for name, prefix := range map[string]string{"default": "", "other": "mine:"} {
		t.Run(name, func(t *testing.T) {
			from, to := openFile(t), openServer(t)
			old := dispatch.New(from, &dispatch.Options{Prefix: prefix})
			for _, queue := range []func(int64) string{old.Keys().Reply, old.Keys().LegacyReply} {
				id := sent(t, old, 1)
				jobs, err := honker.NewQueue[int](from, old.Keys().Work(osis), nil).Claim(t.Context(), "w", 1)
				require.NoError(t, err)
				require.NoError(t, jobs[0].Ack(t.Context()))
				_, err = honker.NewQueue[int](from, queue(id), nil).Enqueue(t.Context(), 42)
				require.NoError(t, err)
				r := run(t, from, to, nil)
				require.Zero(t, r.Jobs)
				require.Contains(t, r.Notes[0], "replies to callers of package dispatch stay")
				require.Equal(t, 42, await(t, old, id))
			}
		})
	}
	from, to := openFile(t), openServer(t)
	for _, name := range []string{"reply:1", "app:reply:7", "hero:reply:x", "hero:q:reply:"} {
		_, err := honker.NewQueue[int](from, name, nil).Enqueue(t.Context(), 1)
		require.NoError(t, err)
	}
	require.EqualValues(t, 4, run(t, from, to, nil).Jobs)
}
