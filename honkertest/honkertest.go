// Package honkertest provides helpers for testing code that uses honker, with real databases. It
// checks enqueued jobs and published events, runs handlers, lets days of retries pass in
// milliseconds, and simulates production faults such as crashes, expired claims and workers in
// other languages.
//
// [Open] opens a file. Most helpers also take a DB of module honkerpg, which the test opens itself.
// Those that need a file say so, and call t.Fatal for a DB on a server: [Crash], [Busy],
// [FailCommits], [DiskFull], [Foreign] and [Golden].
package honkertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
)

// Open returns a DB on a new file. At the end of the test, Open runs [Check] and closes the DB. If
// opts is nil, honker's defaults are used, except that the DB logs to the test's output.
//
// In a testing/synctest bubble, file notifications would come from outside the bubble, and polling
// would keep the clock from advancing freely. There, the DB only notices commits by this process,
// unless opts sets a PollInterval.
func Open(t testing.TB, opts *honker.Options) *honker.DB {
	t.Helper()
	return OpenFile(t, filepath.Join(t.TempDir(), "honker.db"), opts)
}

// OpenFile is like [Open] but uses the file at path.
func OpenFile(t testing.TB, path string, opts *honker.Options) *honker.DB {
	t.Helper()
	opts = testOptions(t, opts)
	db, err := honker.Open(context.Background(), path, opts)
	if err != nil {
		t.Fatalf("honkertest: %v", err)
	}
	options.Store(db, opts)
	t.Cleanup(func() {
		options.Delete(db)
		err := db.Check(context.Background())
		if err != nil && !errors.Is(err, honker.ErrClosed) && !t.Failed() { // the test may have closed the DB
			t.Errorf("honkertest: after the test: %v", err)
		}
		if err := db.Close(); err != nil {
			t.Errorf("honkertest: %v", err)
		}
	})
	return db
}

// testOptions returns a copy of opts with defaults for tests.
func testOptions(t testing.TB, opts *honker.Options) *honker.Options {
	var o honker.Options
	if opts != nil {
		o = *opts
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	if !inBubble() {
		return &o
	}
	o.NoFileNotices = true
	if o.PollInterval == 0 {
		o.PollInterval = time.Hour
	}
	return &o
}

// options maps each open *honker.DB to its options, for Crash.
var options sync.Map

// Bubble runs fn in a testing/synctest bubble, where time passes instantly, with a DB on a new file
// (see [Open]).
func Bubble(t *testing.T, fn func(t *testing.T, db *honker.DB)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { fn(t, Open(t, nil)) })
}

// inBubble reports whether the caller runs in a bubble, according to the header of its stack trace.
func inBubble() bool {
	stack := make([]byte, 128)
	header, _, _ := bytes.Cut(stack[:runtime.Stack(stack, false)], []byte("\n"))
	return bytes.Contains(header, []byte("synctest bubble"))
}

// requireFile fails the test if db is on a server. verb is the helper that needs a file.
func requireFile(t testing.TB, db *honker.DB, verb string) {
	t.Helper()
	if _, err := engine.Of(db).File(verb); err != nil {
		t.Fatalf("honkertest: %v", err)
	}
}

func isFile(db *honker.DB) bool {
	_, err := engine.Of(db).File("")
	return err == nil
}

// Check fails the test if the database's integrity check or honker's invariants are violated. A DB
// returned by [Open] is checked automatically at the end of the test.
func Check(t testing.TB, db *honker.DB) {
	t.Helper()
	if err := db.Check(t.Context()); err != nil {
		t.Errorf("honkertest: %v", err)
	}
}

// Quiet fails the test if a job in any queue is ready, held by a worker, lapsed, expired, dead, or
// waiting for another job. Jobs scheduled for later are ignored.
func Quiet(t testing.TB, db *honker.DB) {
	t.Helper()
	s, err := readState(t.Context(), db)
	if err != nil {
		t.Fatalf("honkertest: %v", err)
	}
	var left []string
	for _, j := range append(s.live, s.dead...) {
		if j.Phase != honker.PhaseScheduled {
			left = append(left, "  "+describe(&j))
		}
	}
	if more := len(left) - shown; more > 0 {
		left = append(left[:shown], fmt.Sprintf("  and %d more", more))
	}
	if len(left) > 0 {
		t.Errorf("honkertest: not quiet:\n%s", strings.Join(left, "\n"))
	}
}

// WaitFor returns a job's result, like [honker.WaitResult]. It calls t.Fatal if there is no result
// within the given time. It's woken by the commit and doesn't poll.
func WaitFor[R any](t testing.TB, db *honker.DB, id int64, within time.Duration) R {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	r, err := honker.WaitResult[R](ctx, db, id)
	if err == nil {
		return r
	}
	fate := "it is gone"
	if job, findErr := findJob(t.Context(), db, id); findErr != nil || job != nil {
		fate = "unknown"
		if job != nil {
			fate = describe(job)
		}
	}
	t.Fatalf("honkertest: no result of job %d within %v: %v (%s)", id, within, err, fate)
	return r
}
