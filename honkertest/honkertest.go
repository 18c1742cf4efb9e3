// Package honkertest helps to test code that uses honker, on real files: what was enqueued and
// published, what a handler does to its job, days of retries in milliseconds, and
// what goes wrong in production, such as crashes, claims that lapse and workers in other languages.
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
)

// Open returns a DB on a fresh file. When the test ends it is closed, and the file is
// checked: SQLite's integrity, and honker's invariants. nil opts means defaults, but that the DB logs to
// the output of the test, so failed attempts are told of where the test fails.
//
// In a bubble of testing/synctest notices of the operating system would come from outside, and
// polls would keep time from passing; so there the DB hears of this process's own commits only,
// unless opts has a PollInterval.
func Open(t testing.TB, opts *honker.Options) *honker.DB {
	t.Helper()
	return OpenFile(t, filepath.Join(t.TempDir(), "honker.db"), opts)
}

// OpenFile is Open on a file of the test's own.
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
		if err != nil && !errors.Is(err, honker.ErrClosed) && !t.Failed() { // the test may have closed it
			t.Errorf("honkertest: after the test: %v", err)
		}
		if err := db.Close(); err != nil {
			t.Errorf("honkertest: %v", err)
		}
	})
	return db
}

// testOptions are opts for a DB of t.
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

// options are what each DB of OpenFile was opened with, by *honker.DB, for Crash.
var options sync.Map

// Bubble runs fn in a bubble of testing/synctest, where time passes at once, with a DB on a
// fresh file, see [Open].
func Bubble(t *testing.T, fn func(t *testing.T, db *honker.DB)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { fn(t, Open(t, nil)) })
}

// inBubble reports whether the caller runs in a bubble, as the first line of its stack says.
func inBubble() bool {
	stack := make([]byte, 128)
	header, _, _ := bytes.Cut(stack[:runtime.Stack(stack, false)], []byte("\n"))
	return bytes.Contains(header, []byte("synctest bubble"))
}

// Check fails the test if the file is not sound: SQLite's integrity, and honker's invariants. The DBs
// of [Open] are checked at the end of the test anyway.
func Check(t testing.TB, db *honker.DB) {
	t.Helper()
	if err := db.Check(t.Context()); err != nil {
		t.Errorf("honkertest: %v", err)
	}
}

// Quiet fails the test if something is left to do, or has failed: jobs of any queue that are ready, that
// a worker holds or has held, that wait for another job, have expired, or are dead. Jobs that wait
// for their time are as they should be.
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

// WaitFor waits for the result of a job, as [honker.WaitResult] does, and fails the test now if there is
// none within so long. It is woken by the commit, and polls nothing.
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
