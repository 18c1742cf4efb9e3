package honkertest

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
)

// Found is a job with its decoded arguments.
type Found[T any] struct {
	honker.JobInfo
	Args T
}

// RequireEnqueued calls t.Fatal unless exactly one waiting job in q has the arguments want and
// matches opts. Use [Count] to expect a different number. RequireEnqueued returns the first
// matching job, or nil for a Count of 0. Arguments are compared as JSON. The failure message lists
// the existing jobs, closest matches first.
//
// A job is waiting from when it's enqueued until it's claimed, and between attempts. Jobs that a
// worker holds or has finished are not found, so call RequireEnqueued while no Work is running.
func RequireEnqueued[T any](t testing.TB, q *honker.Queue[T], want T, opts ...Match) *honker.JobInfo {
	t.Helper()
	return requireEnqueued(t, nil, q, want, opts)
}

// RequireEnqueuedTx is like [RequireEnqueued] but also sees tx's uncommitted jobs.
func RequireEnqueuedTx[T any](t testing.TB, tx honker.Tx, q *honker.Queue[T], want T, opts ...Match) *honker.JobInfo {
	t.Helper()
	return requireEnqueued(t, tx, q, want, opts)
}

// requireEnqueued searches on a transaction, or on its own connection if on is nil.
func requireEnqueued[T any](t testing.TB, on honker.Tx, q *honker.Queue[T], want T, opts []Match) *honker.JobInfo {
	t.Helper()
	m := newMatcher(opts)
	asWanted, err := wanted(want)
	if err != nil {
		t.Fatalf("honkertest: marshal wanted arguments: %v", err)
	}
	m.tests = slices.Insert(m.tests, 0, asWanted)
	found, missed := search(t, on, q, m)
	if len(found) != m.count {
		t.Fatalf("honkertest: %d jobs with %s wait in queue %q, want %d\n%s%s",
			len(found), compact(want), q.Name(), m.count, seen(found, missed), elsewhere(t, on, q))
	}
	if len(found) == 0 {
		return nil
	}
	return &found[0].JobInfo
}

// RequireNone calls t.Fatal if a waiting job in q matches opts. Without opts, any waiting job
// matches.
func RequireNone[T any](t testing.TB, q *honker.Queue[T], opts ...Match) {
	t.Helper()
	if found := Enqueued(t, q, opts...); len(found) > 0 {
		t.Fatalf("honkertest: %d jobs wait in queue %q, want none\n%s", len(found), q.Name(), seen(found, nil))
	}
}

// Enqueued returns the waiting jobs in q that match opts, sorted by ID. It calls t.Fatal if a
// payload cannot be decoded as T.
func Enqueued[T any](t testing.TB, q *honker.Queue[T], opts ...Match) []Found[T] {
	t.Helper()
	found, _ := search(t, nil, q, newMatcher(opts))
	return found
}

// miss is a job that does not match, with the reasons.
type miss struct {
	job    honker.JobInfo
	faults []string
}

// search matches each waiting job in q. Misses with the fewest differences come first.
func search[T any](t testing.TB, on honker.Tx, q *honker.Queue[T], m *matcher) (found []Found[T], missed []miss) {
	t.Helper()
	if is := reflect.TypeFor[T](); m.argsType != nil && m.argsType != is {
		t.Fatalf("honkertest: Where takes %v, but the arguments of queue %q are %v", m.argsType, q.Name(), is)
	}
	m.unit = time.Microsecond
	if isFile(q.DB()) {
		m.unit = time.Second
	}
	var jobs []honker.JobInfo
	err := read(t.Context(), q.DB(), on, func(ctx context.Context, e *engine.Engine, on engine.Querier) (err error) {
		jobs, err = readWaiting(ctx, e, on, q.Name())
		return err
	})
	if err != nil {
		t.Fatalf("honkertest: read queue %q: %v", q.Name(), err)
	}
	for _, job := range jobs {
		args, err := honker.Args[T](&job)
		if err != nil {
			t.Fatalf("honkertest: %s: %v", describe(&job), err)
		}
		if faults := m.faults(&job, args); len(faults) > 0 {
			missed = append(missed, miss{job, faults})
			continue
		}
		found = append(found, Found[T]{job, args})
	}
	slices.SortStableFunc(missed, func(a, b miss) int { return cmp.Compare(len(a.faults), len(b.faults)) })
	return found, missed
}

// read calls f with on, or with a connection of the DB's own if on is nil.
func read(ctx context.Context, db *honker.DB, on honker.Tx, f func(ctx context.Context, e *engine.Engine, on engine.Querier) error) error {
	e := engine.Of(db)
	if on != nil {
		return f(ctx, e, on)
	}
	return e.Read(ctx, func(ctx context.Context, q engine.Querier) error { return f(ctx, e, q) })
}

func (m *matcher) faults(j *honker.JobInfo, args any) (all []string) {
	for _, test := range m.tests {
		if fault := test(j, args); fault != "" {
			all = append(all, strings.Split(fault, "\n")...)
		}
	}
	return all
}

func joined(faults []string) string { return strings.Join(faults, "\n") }

// shown is the maximum number of jobs listed in a failure message.
const shown = 10

// seen lists the matching jobs and then the misses.
func seen[T any](found []Found[T], missed []miss) string {
	var lines []string
	for _, f := range found {
		lines = append(lines, "  matches: "+describe(&f.JobInfo))
	}
	for _, m := range missed {
		lines = append(lines, "  "+describe(&m.job)+"\n    "+strings.Join(m.faults, "\n    "))
	}
	if more := len(lines) - shown; more > 0 {
		lines = append(lines[:shown], fmt.Sprintf("  and %d more", more))
	}
	return strings.Join(lines, "\n")
}

// elsewhere counts the jobs in other queues, jobs held by workers and dead jobs, because the missing
// job may be among them. Each line begins with a line break.
func elsewhere[T any](t testing.TB, on honker.Tx, q *honker.Queue[T]) (lines string) {
	t.Helper()
	var jobs []honker.JobInfo
	err := read(t.Context(), q.DB(), on, func(ctx context.Context, e *engine.Engine, on engine.Querier) (err error) {
		jobs, err = readJobs(ctx, e, on, liveAndDead)
		return err
	})
	if err != nil {
		t.Fatalf("honkertest: %v", err)
	}
	counts := map[string]int{}
	for _, j := range jobs {
		own := j.Queue == q.Name()
		switch {
		case j.State == honker.StatePending && !own:
			counts[fmt.Sprintf("queue %q: wait", j.Queue)]++
		case j.State == honker.StateProcessing:
			counts[fmt.Sprintf("queue %q: a worker holds", j.Queue)]++
		case j.State == honker.StateDead && own:
			counts[fmt.Sprintf("queue %q: dead", j.Queue)]++
		}
	}
	for _, line := range slices.Sorted(maps.Keys(counts)) {
		lines += fmt.Sprintf("\n  %s: %d", line, counts[line])
	}
	return lines
}
