package honkertest

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/honker-go/honker"
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
	return requireEnqueued(t, q.DB().SQL(), q, want, opts)
}

// RequireEnqueuedTx is like [RequireEnqueued] but also sees tx's uncommitted jobs. It cannot decode
// payloads that were encoded by the DB's Codec.
func RequireEnqueuedTx[T any](t testing.TB, tx honker.Tx, q *honker.Queue[T], want T, opts ...Match) *honker.JobInfo {
	t.Helper()
	return requireEnqueued(t, tx, q, want, opts)
}

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
		t.Fatalf("honkertest: %d jobs with %s wait in queue %q, want %d\n%s",
			len(found), compact(want), q.Name(), m.count, seen(t, on, q.Name(), found, missed))
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
		t.Fatalf("honkertest: %d jobs wait in queue %q, want none\n%s", len(found), q.Name(), seen(t, nil, q.Name(), found, nil))
	}
}

// Enqueued returns the waiting jobs in q that match opts, sorted by ID. It calls t.Fatal if a
// payload cannot be decoded as T.
func Enqueued[T any](t testing.TB, q *honker.Queue[T], opts ...Match) []Found[T] {
	t.Helper()
	found, _ := search(t, q.DB().SQL(), q, newMatcher(opts))
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
	jobs, err := readJobs(t.Context(), on, waitingOf, q.Name())
	if err != nil {
		t.Fatalf("honkertest: read queue %q: %v", q.Name(), err)
	}
	for _, job := range jobs {
		args, err := argsOf(t, on, q, &job)
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

// argsOf decodes a job's arguments. Outside a transaction it reads the job again through the DB,
// which applies the Codec.
func argsOf[T any](t testing.TB, on honker.Tx, q *honker.Queue[T], job *honker.JobInfo) (T, error) {
	if on == honker.Tx(q.DB().SQL()) {
		if known, err := q.Get(t.Context(), job.ID); err == nil {
			job = known
		}
	}
	return honker.Args[T](job)
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

// seen lists the matching jobs and then the misses. If on is not nil, it adds counts of other jobs.
func seen[T any](t testing.TB, on honker.Tx, queue string, found []Found[T], missed []miss) string {
	t.Helper()
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
	if on == nil {
		return strings.Join(lines, "\n")
	}
	elsewhere, err := countElsewhere(t.Context(), on, queue)
	if err != nil {
		t.Fatalf("honkertest: %v", err)
	}
	return strings.Join(append(lines, elsewhere...), "\n")
}

const sqlElsewhere = `SELECT CASE WHEN state = 'processing' THEN 'a worker holds' ELSE 'wait' END, queue, count(*)
FROM _honker_live WHERE queue <> ?1 OR state = 'processing' GROUP BY 1, 2
UNION ALL SELECT 'dead', queue, count(*) FROM _honker_dead WHERE queue = ?1 GROUP BY 2`

// countElsewhere counts the jobs in other queues, jobs held by workers and dead jobs, because the
// missing job may be among them.
func countElsewhere(ctx context.Context, on honker.Tx, queue string) (lines []string, err error) {
	err = each(ctx, on, sqlElsewhere, func(rows *sql.Rows) error {
		var what, queue string
		var n int
		err := rows.Scan(&what, &queue, &n)
		lines = append(lines, fmt.Sprintf("  queue %q: %s: %d", queue, what, n))
		return err
	}, queue)
	return lines, err
}
