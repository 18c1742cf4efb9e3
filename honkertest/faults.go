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
)

// Lapse lets the claim of a job run out now, as if its worker had stopped for longer than its lease:
// what the worker does to the job is [honker.ErrClaimLost] from now on, and any other worker can
// claim it. The test fails now if no worker holds the job.
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

// A claim is valid through the second in which it ends.
const sqlLapse = `UPDATE _honker_live SET claim_expires_at = ?2 - 1 WHERE id = ?1 AND state = 'processing' AND claim_expires_at >= ?2`

func lapse(ctx context.Context, db *honker.DB, id int64) (held bool, err error) {
	return change(ctx, db.SQL(), sqlLapse, id, time.Now().Unix())
}

// Crash returns a DB on what a kill of the process would have left at this moment: all that is
// committed, claims and locks that are held by nothing that lives, and nothing of a transaction that
// runs. It is a copy of the file, opened with the options of [Open]; db goes on with the
// original, and changes nothing of the copy. The claims of the copy can be taken again when their
// leases have ended, or after a [Lapse]. Where a Scheduler.Run or a
// Maintain led, another can lead after a minute.
func Crash(t testing.TB, db *honker.DB) *honker.DB {
	t.Helper()
	path := filepath.Join(t.TempDir(), "crashed.db")
	// The gate of db may be in the hands of the caller, in a transaction that is to be cut off.
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

// A leader's lock lasts longer in a bubble than the minute that it lasts in production.
const sqlLeaderDied = `UPDATE _honker_locks SET expires_at = ?1
WHERE name IN ('honker-scheduler', 'honker-maintenance') AND expires_at > ?1`

// Busy takes the write lock of the file for d, as another process does that writes for long: what db
// writes meanwhile waits, and is [honker.ErrBusy] after its BusyTimeout. Busy returns when it has the
// lock, which it gives back after d or at the end of the test.
func Busy(t testing.TB, db *honker.DB, d time.Duration) {
	t.Helper()
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
	case <-ended:
		t.Fatalf("honkertest: busy: %v", explain(err))
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

// openBeside opens the file of db as another process would: its writers meet those of db inside SQLite.
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

// unfairest is the longest pause of Unfair. Most are much shorter, or none.
const unfairest = 3 * time.Millisecond

// Unfair returns options for [Open] with which goroutines are held up for random times: after each
// commit of an enqueue or a publish, and around claims, handlers and settles. A handler that is
// right only as long as others are slow fails soon. The same seed draws the same pauses, though the
// scheduler of the machine deals them out; 0 draws a seed, and the log of the test has it.
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
	return honker.Options{Observer: &honker.Observer{
		Enqueued:  func(honker.Enqueued) { hold() },
		Claimed:   func(honker.Claimed) { hold() },
		Started:   func(honker.Started) { hold() },
		Settled:   func(honker.Settled) { hold() },
		Published: func(honker.Published) { hold() },
		Woke:      func(honker.Woke) { hold() },
	}}
}
