//go:build unix

package move_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/flow"
	"github.com/honker-go/honker/honkerpg"
	"github.com/honker-go/honker/honkerpg/internal/pgtest"
	"github.com/honker-go/honker/honkerpg/move"
	"github.com/honker-go/honker/internal/engine"
)

// refused checks that a move fails with an error and moves nothing.
func refused(t *testing.T, from, to *honker.DB, o *move.Options, want error, text string) {
	t.Helper()
	r, err := move.Run(t.Context(), from, to, o)
	require.ErrorIs(t, err, want)
	require.ErrorContains(t, err, text)
	require.Zero(t, r.Jobs+r.Events+r.Dead)
}

// Runs of package flow are not moved, because their steps would run again.
func TestRun_Flows(t *testing.T) {
	t.Parallel()
	from, to := openFile(t), openServer(t)
	f := flow.New(from, "order", func(ctx context.Context, in int) (int, error) { return flow.Wait[int](ctx, "paid", 0) }, nil)
	started, err := f.Start(t.Context(), "o-1", 1)
	require.True(t, started && err == nil, err)
	enqueue(t, queue(from), 1)
	for _, o := range []*move.Options{nil, {DryRun: true}, {Queues: []string{"a", "flow:order"}}} {
		refused(t, from, to, o, honker.ErrUnsupported, `run "o-1" of flow "order" is waiting`)
	}
	require.EqualValues(t, 1, run(t, from, to, &move.Options{Queues: []string{"a"}}).Jobs)
	cancelled, err := f.Cancel(t.Context(), "o-1")
	require.True(t, cancelled && err == nil, err)
	ctx, cancel := context.WithCancel(t.Context())
	worked := make(chan error, 1)
	go func() { worked <- f.Work(ctx, nil) }()
	_, err = f.Result(t.Context(), "o-1")
	require.ErrorIs(t, err, honker.ErrCancelled)
	cancel()
	require.NoError(t, <-worked)
	run(t, from, to, nil) // the run is over
}

// A move that cannot be right is refused before anything has changed.
func TestRun_Refused(t *testing.T) {
	t.Parallel()
	from, to := openFile(t), openServer(t)
	enqueue(t, queue(from), 1)
	refused(t, to, from, nil, honker.ErrUnsupported, "is not a file")
	refused(t, from, openFile(t), nil, honker.ErrUnsupported, "is not a PostgreSQL database")
	refused(t, to, to, nil, honker.ErrUnsupported, "is not a file")
	refused(t, nil, to, nil, honker.ErrInvalid, "nil *honker.DB")
	refused(t, from, to, &move.Options{Queues: []string{""}}, honker.ErrInvalid, "the queue name is empty")

	used := openServer(t)
	enqueue(t, queue(used), 7)
	refused(t, from, used, nil, honker.ErrInvalid, "the schema has jobs or events of its own")
	refused(t, from, used, &move.Options{DryRun: true}, honker.ErrInvalid, "the schema has jobs or events of its own")

	run(t, from, to, nil)
	enqueue(t, queue(from), 2)
	refused(t, from, openServer(t), nil, honker.ErrInvalid, "the file is being moved to another database or schema")
	require.EqualValues(t, 1, run(t, from, to, nil).Jobs)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := move.Run(over, from, to, nil)
	require.ErrorIs(t, err, context.Canceled)
}

// A copy of the file from before its last jobs have moved would move them again.
func TestRun_OlderCopy(t *testing.T) {
	t.Parallel()
	ctx, dir := t.Context(), t.TempDir()
	from, to := openFile(t), openServer(t)
	enqueue(t, queue(from), 1)
	run(t, from, to, nil)
	enqueue(t, queue(from), 2)
	_, err := from.SQL().ExecContext(ctx, `VACUUM INTO ?`, filepath.Join(dir, "copy.db"))
	require.NoError(t, err)
	run(t, from, to, nil)
	old, err := honker.Open(ctx, filepath.Join(dir, "copy.db"), nil)
	require.NoError(t, err)
	defer old.Close()
	refused(t, old, to, nil, honker.ErrInvalid, "it is a copy from before the move")
}

// In a schema that is in use, moved jobs and events get ids after those that it has, and links and readers follow.
func TestRun_IntoUsed(t *testing.T) {
	t.Parallel()
	from, to := openFile(t), openServer(t)
	first := enqueue(t, queue(from), 1)
	enqueue(t, queue(from), 2, honker.After(first))
	publish(t, stream(from), 1, 4)
	next(t, stream(from), "c", 2)
	own := enqueue(t, queue(to), 9, honker.Priority(1))
	publish(t, honker.NewStream[int](to, "other", nil), 1, 5)
	r := run(t, from, to, &move.Options{IntoUsed: true})
	require.EqualValues(t, 2, r.Jobs)
	for _, want := range []int{9, 1, 2} {
		job := claim(t, queue(to))
		require.Equal(t, want, job.Args)
		require.Equal(t, want == 9, job.ID == own)
		require.NoError(t, job.Ack(t.Context()))
	}
	require.Equal(t, []int{3, 4}, next(t, stream(to), "c", 2))
}

// Only one mover works on a file: a second waits for the lease of the first, and fails if it is renewed.
func TestRun_Twice(t *testing.T) {
	t.Parallel()
	from, to := openFile(t), openServer(t)
	enqueue(t, queue(from), 1)
	held := claim(t, queue(from)) // keeps the first mover waiting
	ctx, cancel := context.WithCancel(t.Context())
	begun, done := make(chan struct{}, 1), make(chan error, 1)
	go func() {
		_, err := move.Run(ctx, from, to, &move.Options{Progress: func(move.Report) {
			select {
			case begun <- struct{}{}:
			default:
			}
		}})
		done <- err
	}()
	<-begun
	refused(t, from, to, nil, honker.ErrBusy, "another process moves this file")
	require.NoError(t, held.Ack(t.Context()))
	require.NoError(t, <-done)
	cancel()
	run(t, from, to, nil)
}

// A dry run writes nothing. It reports the rows that a move would take.
func TestRun_DryRun(t *testing.T) {
	t.Parallel()
	from, to := openFile(t), openServer(t)
	enqueue(t, queue(from), 1)
	publish(t, stream(from), 1, 3)
	path := filepath.Join(t.TempDir(), "before.db")
	_, err := from.SQL().ExecContext(t.Context(), `VACUUM INTO ?`, path)
	require.NoError(t, err)
	r := run(t, from, to, &move.Options{DryRun: true})
	require.EqualValues(t, 1, r.Jobs)
	require.EqualValues(t, 3, r.Events)
	require.Equal(t, []move.Left{{Queue: "a", Waiting: 1}}, r.Left)
	after := filepath.Join(t.TempDir(), "after.db")
	_, err = from.SQL().ExecContext(t.Context(), `VACUUM INTO ?`, after)
	require.NoError(t, err)
	a, err := os.ReadFile(path)
	require.NoError(t, err)
	b, err := os.ReadFile(after)
	require.NoError(t, err)
	require.Equal(t, a, b)
}

// A schedule goes along with its next time, and only the target has it then. Pauses, limits and retentions are copied.
func TestRun_Settings(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	from, to := openFile(t), openServer(t)
	require.NoError(t, from.Scheduler().Register(ctx, honker.Schedule{Name: "s", Queue: "a", Spec: "@every 1h", Payload: 7, Priority: 2, Missed: honker.Skip}))
	before, err := from.Scheduler().List(ctx)
	require.NoError(t, err)
	limits := honker.Limits{Running: 3, PerKey: 1, Rate: honker.Rate{N: 5, Per: time.Minute, Burst: 2}}
	require.NoError(t, queue(from).SetLimits(ctx, limits))
	_, err = queue(from).Pause(ctx, &honker.PauseOptions{Reason: "why", Key: "ann"})
	require.NoError(t, err)
	kept := honker.QueueRetention{Done: honker.Retention{MaxCount: 9}}
	require.NoError(t, queue(from).SetRetention(ctx, kept))

	require.EqualValues(t, 1, run(t, from, to, nil).Schedules)
	after, err := to.Scheduler().List(ctx)
	require.NoError(t, err)
	require.Equal(t, before, after)
	left, err := from.Scheduler().List(ctx)
	require.NoError(t, err)
	require.Empty(t, left)
	got, err := queue(to).Limits(ctx)
	require.NoError(t, err)
	require.Equal(t, limits, got)
	retention, err := queue(to).Retention(ctx)
	require.NoError(t, err)
	require.Equal(t, kept, retention)
	enqueue(t, queue(to), 1, honker.Key("ann"))
	enqueue(t, queue(to), 2, honker.Key("bob"))
	require.Equal(t, 2, claim(t, queue(to)).Args)
}

// PostgreSQL's text has no zero bytes. A job with such a text stays, and does not keep others from moving.
func TestRun_Text(t *testing.T) {
	t.Parallel()
	from, to := openFile(t), openServer(t)
	enqueue(t, queue(from), 1)
	_, err := from.SQL().ExecContext(t.Context(), `INSERT INTO _honker_live (queue, payload) VALUES ('a', '"x' || char(0) || '"'), ('a', CAST(x'22ff22' AS TEXT))`)
	require.NoError(t, err)
	enqueue(t, queue(from), 2)
	s := honker.NewQueue[string](from, "b", nil)
	_, err = s.Enqueue(t.Context(), "an escaped \x00")
	require.NoError(t, err)
	r := run(t, from, to, nil)
	require.EqualValues(t, 3, r.Jobs)
	require.Equal(t, []move.Left{{Queue: "a", Waiting: 2}}, r.Left)
	require.Contains(t, r.Notes[0], "2 jobs have text that is not UTF-8 or has a zero byte")
}

// A message that an inbox has received in the file is not received again.
func TestRun_Received(t *testing.T) {
	t.Parallel()
	from, to := openFile(t), openServer(t)
	receive := func(db *honker.DB) bool {
		var first bool
		e := engine.Of(db)
		require.NoError(t, e.Write(t.Context(), "", engine.OpFunc(func(ctx context.Context, q engine.Querier, now time.Time) (err error) {
			first, err = e.Stores.Inboxes.Receive(ctx, q, "shop", "1", now, now.Add(time.Hour))
			return err
		})))
		return first
	}
	require.True(t, receive(from))
	run(t, from, to, nil)
	require.False(t, receive(to))
}

// A standby cannot take anything in. The file stays as it is, and a dry run counts it.
func TestRun_Standby(t *testing.T) {
	if testing.Short() {
		t.Skip("starts two servers")
	}
	t.Parallel()
	from, primary := openFile(t), pgtest.Cluster(t)
	enqueue(t, queue(from), 1)
	db, err := honkerpg.Open(t.Context(), primary.DSN(), nil)
	require.NoError(t, err)
	require.NoError(t, db.Close())
	standby := pgtest.Standby(t, primary, true)
	_, err = honkerpg.Open(t.Context(), standby.DSN(), nil)
	require.ErrorIs(t, err, honker.ErrReadOnly)
	var to *honker.DB
	require.Eventually(t, func() bool { // the tables have arrived
		to, err = honkerpg.Open(t.Context(), standby.DSN(), &honkerpg.Options{Options: honker.Options{ReadOnly: true}})
		return err == nil
	}, time.Minute, 20*time.Millisecond)
	defer func() { require.NoError(t, to.Close()) }()
	refused(t, from, to, nil, honker.ErrReadOnly, "read-only")
	require.EqualValues(t, 1, run(t, from, to, &move.Options{DryRun: true}).Jobs)
	require.Equal(t, 1, claim(t, queue(from)).Args)
	later := openServer(t)
	require.Zero(t, run(t, from, later, &move.Options{Once: true}).Jobs) // the file is not bound to the standby
}

// A dry run needs no target, as its schema may not exist yet. A file that is being moved has a target.
func TestRun_DryRun_NoTarget(t *testing.T) {
	t.Parallel()
	from := openFile(t)
	enqueue(t, queue(from), 1)
	require.EqualValues(t, 1, run(t, from, nil, &move.Options{DryRun: true}).Jobs)
	refused(t, from, nil, nil, honker.ErrInvalid, "nil *honker.DB")
	run(t, from, openServer(t), nil)
	refused(t, from, nil, &move.Options{DryRun: true}, honker.ErrInvalid, "the file is being moved to another database or schema")
}
