package honkertest

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/observe"
)

// Lapse makes a job's claim expire now, as if its worker had stalled for longer than its lease. If
// that worker then tries to settle or extend the job, it gets [honker.ErrClaimLost], and any other
// worker can claim the job. Lapse calls t.Fatal if no worker holds the job.
func Lapse(t testing.TB, db *honker.DB, id int64) {
	t.Helper()
	held, err := lapse(t.Context(), db, id)
	if err != nil {
		t.Fatalf("honkertest: lapse of job %d: %v", id, explain(err))
	}
	if !held {
		t.Fatalf("honkertest: lapse of job %d: no worker holds it", id)
	}
}

// lapse ends the claim a second ago, because a claim on a file is valid through its last second.
func lapse(ctx context.Context, db *honker.DB, id int64) (held bool, err error) {
	e := engine.Of(db)
	err = e.Write(ctx, "", engine.OpFunc(func(ctx context.Context, q engine.Querier, now time.Time) error {
		job, found, err := e.Stores.Jobs.Find(ctx, q, id, "")
		if err != nil || !found {
			return err
		}
		held, err = e.Stores.Jobs.Extend(ctx, q, row.Extension{Claim: row.Claim{ID: id, Worker: job.WorkerID, Attempt: job.Attempts}, Lease: -time.Second}, now)
		return err
	}))
	return held, err
}

// Crash returns a DB in the state that would be left behind if the process were killed now. It has
// all committed data, including claims and locks that nobody will release, but no changes from an
// open transaction. The DB is opened on a copy of the file with the options passed to [Open] or
// [OpenFile]; db remains usable and independent. Claims in the copy can be taken over when their
// leases expire or after [Lapse]. If a Scheduler.Run or Maintain was the leader, another can take
// over within a minute.
//
// Crash copies a file, so it calls t.Fatal if db is on a server.
func Crash(t testing.TB, db *honker.DB) *honker.DB {
	t.Helper()
	requireFile(t, db, "Crash")
	path := filepath.Join(t.TempDir(), "crashed.db")
	// The caller may be inside a write transaction on db, which the copy must not contain. Open the
	// file again, because db would wait for that transaction.
	other, err := openBeside(t.Context(), db)
	if err != nil {
		t.Fatalf("honkertest: crash: %v", err)
	}
	_, err = other.SQL().ExecContext(t.Context(), `VACUUM INTO ?1`, path)
	if err := errors.Join(err, other.Close()); err != nil {
		t.Fatalf("honkertest: crash: %v", err)
	}
	var opts *honker.Options
	if o, ok := options.Load(db); ok {
		opts = o.(*honker.Options)
	}
	crashed := OpenFile(t, path, opts)
	if _, err := crashed.SQL().ExecContext(t.Context(), sqlLeaderDied, time.Now().Add(time.Minute).Unix()); err != nil {
		t.Fatalf("honkertest: crash: %v", err)
	}
	return crashed
}

// In a bubble, a leader's lock lasts longer than the minute it lasts in production.
const sqlLeaderDied = `UPDATE _honker_locks SET expires_at = ?1
WHERE name IN ('honker-scheduler', 'honker-maintenance') AND expires_at > ?1`

// Busy holds the file's write lock for d, as another process with a long write would. While it's
// held, writes to db wait, and they return [honker.ErrBusy] once db's BusyTimeout has passed. Busy
// returns as soon as it has the lock. It releases the lock after d or at the end of the test. A server
// has no such lock, so Busy calls t.Fatal if db is on a server.
func Busy(t testing.TB, db *honker.DB, d time.Duration) {
	t.Helper()
	requireFile(t, db, "Busy")
	other, err := openBeside(t.Context(), db)
	if err != nil {
		t.Fatalf("honkertest: busy: %v", err)
	}
	ctx, end := context.WithCancel(context.WithoutCancel(t.Context()))
	held, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		err = errors.Join(other.Tx(ctx, func(ctx context.Context, _ *sql.Tx) error {
			close(held)
			pause(ctx, d)
			return nil
		}), other.Close())
	}()
	t.Cleanup(func() { end(); <-ended })
	select {
	case <-held:
	case <-ended: // maybe after held, if d is short
		if err != nil {
			t.Fatalf("honkertest: busy: %v", explain(err))
		}
	}
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// openBeside opens db's file again, as another process would. The two DBs coordinate their writes
// only through SQLite's locks.
func openBeside(ctx context.Context, db *honker.DB) (*honker.DB, error) {
	var path string
	err := each(ctx, db.SQL(), `SELECT file FROM pragma_database_list WHERE name = 'main'`, func(rows *sql.Rows) error {
		return rows.Scan(&path)
	})
	if err != nil {
		return nil, err
	}
	return honker.Open(ctx, path, &honker.Options{NoFileNotices: true, Logger: slog.New(slog.DiscardHandler)})
}

// unfairest is the longest delay that Unfair injects. Half of the delays are zero, and most of the
// others are much shorter.
const unfairest = 3 * time.Millisecond

// Unfair returns options for [Open] that delay goroutines by random amounts: after each commit of
// an enqueue or a publish, and around claims, handlers and settles. This exposes handlers that
// depend on timing. The seed determines the sequence of delays but not which goroutine gets which
// delay. If seed is 0, Unfair picks a random seed. It logs the seed.
func Unfair(t testing.TB, seed int64) honker.Options {
	t.Helper()
	if seed == 0 {
		seed = rand.Int64()
	}
	t.Logf("honkertest: unfair: seed %d", seed)
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(uint64(seed), 0))
	hold := func() {
		mu.Lock()
		d := time.Duration(random.ExpFloat64() * float64(unfairest) / 8)
		none := random.IntN(2) == 0
		mu.Unlock()
		if !none {
			time.Sleep(min(d, unfairest))
		}
	}
	return honker.Options{Observer: &observe.Observer{
		Enqueued:  func(observe.Enqueued) { hold() },
		Claimed:   func(observe.Claimed) { hold() },
		Started:   func(observe.Started) { hold() },
		Settled:   func(observe.Settled) { hold() },
		Published: func(observe.Published) { hold() },
		Woke:      func(observe.Woke) { hold() },
	}}
}
