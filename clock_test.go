package honker_test

import (
	"context"
	"database/sql"
	"log/slog"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/sqlite/backend"
	"github.com/honker-go/honker/internal/testkit"
)

// ahead is how far the clock of a fastBackend is ahead of the process's clock.
const ahead = time.Hour

// fastBackend is a file whose clock is ahead of the process's clock, as the clock of a server may be.
type fastBackend struct{ *backend.File }

func (b fastBackend) Now() time.Time { return b.File.Now().Add(ahead) }

func (b fastBackend) Write(ctx context.Context, op engine.Op) error {
	return b.File.Write(ctx, fastOp{op})
}

// fastOp is an op that gets the time of a fastBackend.
type fastOp struct{ engine.Op }

func (o fastOp) Run(ctx context.Context, q engine.Querier, now time.Time) error {
	return o.Op.Run(ctx, q, now.Add(ahead))
}

// inFastBubble runs do in a bubble with a DB on a fastBackend.
func inFastBubble(t *testing.T, do func(t *testing.T, db *honker.DB)) {
	synctest.Test(t, func(t *testing.T) {
		open := func(s engine.Settings) (engine.Database, error) {
			f, err := backend.Open(t.Context(), filepath.Join(t.TempDir(), "app.db"), backend.Options{
				Logger: s.Logger, BusyTimeout: s.BusyTimeout, Readers: 4, PollInterval: time.Hour, NoFileNotices: true,
			})
			if err != nil {
				return engine.Database{}, err
			}
			return engine.Database{Backend: fastBackend{f}, Stores: backend.Stores(), Pool: f.SQL, Looks: f.Looks()}, nil
		}
		made, err := engine.NewDB(honker.Options{Logger: slog.New(slog.DiscardHandler), NoFileNotices: true}, open)
		require.NoError(t, err)
		db := made.(*honker.DB)
		defer func() { require.NoError(t, db.Close()) }()
		do(t, db)
	})
}

// serverNow returns the time of the fastBackend's clock, in the resolution of the file.
func serverNow() time.Time { return time.Now().Add(ahead).Truncate(time.Second) }

// TestClock_Jobs shows that reads and verbs in a caller's transaction go by the clock of the backend.
func TestClock_Jobs(t *testing.T) {
	inFastBubble(t, func(t *testing.T, db *honker.DB) {
		ctx := t.Context()
		q := honker.NewQueue[int](db, "q", nil)
		due := serverNow().Add(30 * time.Minute)
		var id int64
		require.NoError(t, db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) (err error) {
			id, err = q.EnqueueTx(ctx, tx, 1, honker.Delay(30*time.Minute))
			return err
		}))
		job, err := q.Get(ctx, id)
		require.NoError(t, err)
		require.Equal(t, honker.PhaseScheduled, job.Phase)
		require.True(t, due.Equal(job.RunAt), job.RunAt)
		next, err := q.NextClaimAt(ctx)
		require.NoError(t, err)
		require.True(t, due.Equal(next), next)

		time.Sleep(31 * time.Minute) // half an hour before the due time by the process's clock
		job, err = q.Get(ctx, id)
		require.NoError(t, err)
		require.Equal(t, honker.PhaseReady, job.Phase)
		s := stats(t, q)
		require.EqualValues(t, 1, s.Ready.N)
		require.True(t, serverNow().Equal(s.AsOf), s.AsOf)
	})
}

// TestClock_Worker_Sleeps shows that a worker that sleeps until a job is due wakes at the due time by the clock of the
// backend.
func TestClock_Worker_Sleeps(t *testing.T) {
	inFastBubble(t, func(t *testing.T, db *honker.DB) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		q := honker.NewQueue[int](db, "q", nil)
		began := time.Now()
		_, err := q.Enqueue(ctx, 1, honker.Delay(10*time.Minute))
		require.NoError(t, err)
		var took time.Duration
		err = q.Work(ctx, func(context.Context, *honker.Job[int]) error {
			took = time.Since(began)
			cancel()
			return nil
		}, nil)
		require.NoError(t, err)
		require.InDelta(t, 10*time.Minute, took, float64(2*time.Second))
	})
}

// TestClock_Lock_Expires shows that a waiter gets a lock when it expires by the clock of the backend, and that a holder
// renews its lock by the same clock.
func TestClock_Lock_Expires(t *testing.T) {
	testkit.FileOnly(t)
	inFastBubble(t, func(t *testing.T, db *honker.DB) {
		ctx := t.Context()
		l, err := db.Lock(ctx, "l", &honker.LockOptions{TTL: time.Minute})
		require.NoError(t, err)
		time.Sleep(10 * time.Minute)
		require.NoError(t, l.Context().Err())
		_, err = db.TryLock(ctx, "l", nil)
		require.ErrorIs(t, err, honker.ErrLockHeld)
		require.NoError(t, l.Unlock(ctx))

		began := time.Now()
		_, err = db.SQL().ExecContext(ctx, "INSERT INTO _honker_locks (name, owner, expires_at) VALUES ('l', 'other', ?)", serverNow().Add(20*time.Second).Unix())
		require.NoError(t, err)
		l, err = db.Lock(ctx, "l", nil)
		require.NoError(t, err)
		require.InDelta(t, 20*time.Second, time.Since(began), float64(2*time.Second))
		require.NoError(t, l.Unlock(ctx))
	})
}

// TestClock_Pause_Ends shows that the end of a pause is a time of the backend's clock.
func TestClock_Pause_Ends(t *testing.T) {
	inFastBubble(t, func(t *testing.T, db *honker.DB) {
		q := honker.NewQueue[int](db, "q", nil)
		_, err := q.Pause(t.Context(), &honker.PauseOptions{Until: time.Now().Add(ahead / 2)})
		require.ErrorIs(t, err, honker.ErrInvalid) // in the past
		_, err = q.Pause(t.Context(), &honker.PauseOptions{Until: serverNow().Add(time.Minute)})
		require.NoError(t, err)
		require.NotNil(t, stats(t, q).Pause)
		time.Sleep(2 * time.Minute)
		require.Nil(t, stats(t, q).Pause)
	})
}

// TestClock_Schedule shows that a schedule's next time is computed from the clock of the backend.
func TestClock_Schedule(t *testing.T) {
	inFastBubble(t, func(t *testing.T, db *honker.DB) {
		require.NoError(t, db.Scheduler().Register(t.Context(), honker.Schedule{Name: "s", Queue: "q", Spec: "@every 5m"}))
		all, err := db.Scheduler().List(t.Context())
		require.NoError(t, err)
		require.Len(t, all, 1)
		require.True(t, all[0].NextFireAt.After(serverNow()), all[0].NextFireAt)
	})
}
