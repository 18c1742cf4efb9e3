package admin_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
)

// ids returns the IDs of the jobs on a page.
func ids(p *admin.JobPage) []int64 {
	out := []int64{}
	for _, j := range p.Jobs {
		out = append(out, j.ID)
	}
	return out
}

// pages reads all pages of a list and returns the IDs of the jobs.
func pages(t *testing.T, db *honker.DB, f admin.JobFilter, o admin.PageOptions) []int64 {
	t.Helper()
	all := []int64{}
	for {
		p, err := admin.ListJobs(context.Background(), db, f, &o)
		require.NoError(t, err)
		if o.Limit != 0 {
			require.LessOrEqual(t, len(p.Jobs), o.Limit)
		}
		all = append(all, ids(p)...)
		if o.After = p.Next; p.Next == "" {
			return all
		}
	}
}

// many stores n jobs in two queues. Every third job is dead.
func many(t *testing.T, db *honker.DB, n int) {
	t.Helper()
	job := func(id int64) testkit.StoredJob {
		return testkit.StoredJob{ID: id, Queue: []string{"b", "a"}[id%2], Payload: fmt.Sprint(id), Priority: id % 4, RunAt: 1000 + id/10, DiedAt: 1000 + id*7%11}
	}
	testkit.StoreLive(t, db, n-n/3, func(n int64) testkit.StoredJob { return job(n + (n-1)/2) })
	testkit.StoreDead(t, db, n/3, func(n int64) testkit.StoredJob { return job(3 * n) })
}

// Jobs with equal sort keys are neither skipped nor repeated, whatever the limit.
func TestListJobs_Ties(t *testing.T) {
	ctx, db, _, _ := open(t)
	many(t, db, 100)
	for order, query := range map[admin.Order]string{
		admin.NewestFirst:   `SELECT id FROM _honker_live WHERE queue = 'a' UNION ALL SELECT id FROM _honker_dead WHERE queue = 'a' ORDER BY id DESC`,
		admin.OldestFirst:   `SELECT id FROM _honker_live WHERE queue = 'a' UNION ALL SELECT id FROM _honker_dead WHERE queue = 'a' ORDER BY id`,
		admin.ClaimOrder:    `SELECT id FROM _honker_live WHERE queue = 'a' ORDER BY priority DESC, run_at, id`,
		admin.LastDiedFirst: `SELECT id FROM _honker_dead WHERE queue = 'a' ORDER BY died_at DESC, id DESC`,
	} {
		want := rows(t, db, query)
		require.Greater(t, len(want), 10)
		for _, limit := range []int{1, 2, 7, len(want), 1000} {
			got := pages(t, db, admin.JobFilter{Queues: []string{"a"}}, admin.PageOptions{Order: order, Limit: limit})
			require.Equal(t, fmt.Sprint(want), fmt.Sprint(got), "order %d by %d", order, limit)
		}
	}
	// The list of all queues is merged from per-queue lists.
	want := rows(t, db, `SELECT id FROM _honker_dead ORDER BY died_at DESC, id DESC`)
	require.Equal(t, fmt.Sprint(want), fmt.Sprint(pages(t, db, admin.JobFilter{}, admin.PageOptions{Order: admin.LastDiedFirst, Limit: 3})))
	p, err := admin.ListJobs(ctx, db, admin.JobFilter{}, nil)
	require.NoError(t, err)
	require.Len(t, p.Jobs, 50, "by default")
}

// A cursor is safe in a URL. It is valid only for the filter and the order of its page.
func TestListJobs_Cursor(t *testing.T) {
	ctx, db, _, _ := open(t)
	many(t, db, 30)
	f := admin.JobFilter{Queues: []string{"a"}, Contains: "1"}
	p, err := admin.ListJobs(ctx, db, f, &admin.PageOptions{Limit: 1, Budget: time.Hour})
	require.NoError(t, err)
	require.Regexp(t, `^[0-9A-Za-z_-]+$`, string(p.Next))
	next, err := admin.ListJobs(ctx, db, f, &admin.PageOptions{Limit: 3, After: p.Next, Budget: time.Hour})
	require.NoError(t, err, "another limit fits")
	require.Less(t, next.Jobs[0].ID, p.Jobs[0].ID)

	later := f
	later.CreatedSince = time.Unix(1, 0)
	for name, try := range map[string]func() (*admin.JobPage, error){
		"another queue": func() (*admin.JobPage, error) {
			return list(ctx, db, admin.JobFilter{Queues: []string{"b"}, Contains: "1"}, admin.NewestFirst, p.Next)
		},
		"another text": func() (*admin.JobPage, error) {
			return list(ctx, db, admin.JobFilter{Queues: []string{"a"}, Contains: "2"}, admin.NewestFirst, p.Next)
		},
		"another time":  func() (*admin.JobPage, error) { return list(ctx, db, later, admin.NewestFirst, p.Next) },
		"another order": func() (*admin.JobPage, error) { return list(ctx, db, f, admin.OldestFirst, p.Next) },
		"a kind of error": func() (*admin.JobPage, error) {
			return list(ctx, db, admin.JobFilter{Queues: f.Queues, Contains: "1", Fingerprint: "x"}, admin.NewestFirst, p.Next)
		},
		"cut":       func() (*admin.JobPage, error) { return list(ctx, db, f, admin.NewestFirst, p.Next[:len(p.Next)-3]) },
		"no base64": func() (*admin.JobPage, error) { return list(ctx, db, f, admin.NewestFirst, "§") },
		"no cursor": func() (*admin.JobPage, error) {
			return list(ctx, db, f, admin.NewestFirst, admin.Cursor(base64.RawURLEncoding.EncodeToString([]byte(`[]`))))
		},
		"a stranger": func() (*admin.JobPage, error) {
			return list(ctx, db, f, admin.NewestFirst, admin.Cursor(base64.RawURLEncoding.EncodeToString([]byte(`{"i":1}`))))
		},
	} {
		_, err := try()
		require.ErrorIs(t, err, honker.ErrInvalid, name)
	}
}

func list(ctx context.Context, db *honker.DB, f admin.JobFilter, o admin.Order, after admin.Cursor) (*admin.JobPage, error) {
	return admin.ListJobs(ctx, db, f, &admin.PageOptions{Order: o, After: after, Budget: time.Hour})
}

// A list contains live, dead and done jobs.
func TestListJobs_AllTables(t *testing.T) {
	ctx, db, q, _ := open(t)
	dead := bury(t, q, 1, "no paper", honker.Unique("k", nil))
	waiting := testkit.Enqueue(t, q, 2)
	later := testkit.Enqueue(t, q, 3, honker.Delay(time.Hour))
	require.NoError(t, q.SetRetention(ctx, honker.QueueRetention{Done: honker.Retention{MaxCount: 10}}))
	testkit.Exec(t, db, testkit.Either(`INSERT INTO _honkerx_done (job_id, queue, payload, priority, run_at, worker_id, attempts, max_attempts, created_at, done_ms)
VALUES (99, 'jobs', '4', 1, 2, 'w', 3, 4, 5, 6789)`, `INSERT INTO done (id, queue, payload, priority, run_at, worker, attempts, max_attempts, created_at, done_at)
VALUES (99, 'jobs', '4', 1, to_timestamp(2), 'w', 3, 4, to_timestamp(5), to_timestamp(6.789))`))
	p, err := admin.ListJobs(ctx, db, admin.JobFilter{}, nil)
	require.NoError(t, err)
	require.Equal(t, []int64{99, later, waiting, dead}, ids(p))
	require.Empty(t, p.Next)
	require.EqualValues(t, 4, p.Scanned)
	require.Equal(t, honker.JobInfo{ID: 99, Queue: "jobs", State: "done", Phase: honker.PhaseDone, Payload: []byte("4"), Priority: 1, Attempts: 3, MaxAttempts: 4,
		WorkerID: "w", CreatedAt: time.Unix(5, 0), RunAt: time.Unix(2, 0), DoneAt: time.UnixMilli(6789)}, p.Jobs[0])
	for _, i := range p.Jobs[1:] {
		want, err := db.Job(ctx, i.ID)
		require.NoError(t, err)
		require.Equal(t, *want, i)
	}
}

// IDs and numbers in payloads beyond the precision of float64 are preserved.
func TestListJobs_Verbatim(t *testing.T) {
	ctx, db, _, _ := open(t)
	const payload = `{"big":9007199254740993,  "small":1.10}`
	testkit.StoreLive(t, db, 2, func(n int64) testkit.StoredJob {
		return testkit.StoredJob{ID: []int64{1<<53 + 1, math.MaxInt64}[n-1], Payload: payload}
	})
	p, err := admin.ListJobs(ctx, db, admin.JobFilter{Where: map[string]string{"big": "9007199254740993"}}, &admin.PageOptions{Limit: 1, Budget: time.Hour})
	require.NoError(t, err)
	require.Equal(t, []int64{math.MaxInt64}, ids(p))
	require.Equal(t, payload, string(p.Jobs[0].Payload))
	p, err = list(ctx, db, admin.JobFilter{Where: map[string]string{"big": "9007199254740993"}}, admin.NewestFirst, p.Next)
	require.NoError(t, err)
	require.Equal(t, []int64{1<<53 + 1}, ids(p))
}

// A page ends when its budget is used up, and its cursor resumes there without missing a job.
func TestListJobs_Early(t *testing.T) {
	ctx, db, _, _ := open(t)
	many(t, db, 3000)
	f := admin.JobFilter{Contains: "7"}
	o := admin.PageOptions{Budget: 1, Limit: 20}
	early, scanned := 0, int64(0)
	got := []int64{}
	for {
		p, err := admin.ListJobs(ctx, db, f, &o)
		require.NoError(t, err)
		got = append(got, ids(p)...)
		scanned += p.Scanned
		if p.Early {
			early++
			require.NotEmpty(t, p.Next)
		}
		if o.After = p.Next; p.Next == "" {
			break
		}
	}
	require.EqualValues(t, 3000, scanned, "each job once")
	require.Greater(t, early, 10)
	require.Equal(t, pages(t, db, f, admin.PageOptions{Budget: time.Hour, Limit: 1000}), got)
}

// Jobs in a small queue or a rare phase are found without reading all other jobs, in any order.
func TestListJobs_RareAmongMany(t *testing.T) {
	ctx, db, _, _ := open(t)
	testkit.StoreLive(t, db, 6000, func(n int64) testkit.StoredJob {
		switch {
		case n == 2500 || n == 3500:
			return testkit.StoredJob{RunAt: 4_000_000_000}
		case 2998 <= n && n <= 3002:
			return testkit.StoredJob{Queue: "rare", RunAt: 1}
		}
		return testkit.StoredJob{RunAt: 1}
	})
	testkit.Exec(t, db, testkit.Either(`UPDATE _honker_live SET state = 'processing', worker_id = 'w', claim_expires_at = 4000000000, attempts = 1 WHERE id IN (2000, 3000)`,
		`UPDATE job SET state = 1, worker = 'w', lease_until = to_timestamp(4000000000), attempts = 1 WHERE id IN (2000, 3000)`))
	for name, l := range map[string]struct {
		f    admin.JobFilter
		want []int64
	}{
		"queue":     {admin.JobFilter{Queues: []string{"rare"}}, []int64{2998, 2999, 3000, 3001, 3002}},
		"running":   {admin.JobFilter{Phases: []honker.Phase{honker.PhaseRunning}}, []int64{2000, 3000}},
		"scheduled": {admin.JobFilter{Phases: []honker.Phase{honker.PhaseScheduled}}, []int64{2500, 3500}},
		"both":      {admin.JobFilter{Queues: []string{"rare"}, Phases: []honker.Phase{honker.PhaseRunning, honker.PhaseDead}}, []int64{3000}},
		"none":      {admin.JobFilter{Queues: []string{"empty"}}, []int64{}},
	} {
		p, err := list(ctx, db, l.f, admin.OldestFirst, "")
		require.NoError(t, err)
		require.Equal(t, l.want, ids(p), name)
		require.Less(t, p.Scanned, int64(1500), name)
		require.Empty(t, p.Next)
		slices.Reverse(l.want)
		require.Equal(t, l.want, pages(t, db, l.f, admin.PageOptions{Limit: 1}), name)
	}
	p, err := list(ctx, db, admin.JobFilter{Queues: []string{"rare"}, Phases: []honker.Phase{honker.PhaseRunning}}, admin.OldestFirst, "")
	require.NoError(t, err)
	require.Equal(t, []int64{3000}, ids(p))
	require.EqualValues(t, 1, p.Scanned, "the page of a queue lists its running jobs without a walk")
}

// EachJob iterates over all pages and stops with the loop or ctx.
func TestEachJob(t *testing.T) {
	ctx, db, _, _ := open(t)
	many(t, db, 200)
	var got []int64
	for j, err := range admin.EachJob(ctx, db, admin.JobFilter{}, &admin.PageOptions{Limit: 7, Order: admin.OldestFirst}) {
		require.NoError(t, err)
		got = append(got, j.ID)
		if j.ID == 150 { // no read is open in the loop body
			testkit.Exec(t, db, `DELETE FROM _honker_dead WHERE id > 180`)
		}
	}
	require.Len(t, got, 194)
	require.True(t, slices.IsSorted(got))
	stopping, stop := context.WithCancel(ctx)
	defer stop()
	n := 0
	var last error
	for _, err := range admin.EachJob(stopping, db, admin.JobFilter{}, &admin.PageOptions{Limit: 2}) {
		n++
		stop()
		last = err
	}
	require.Equal(t, 3, n, "the page, and the error")
	require.ErrorIs(t, last, context.Canceled)
	for range admin.EachJob(ctx, db, admin.JobFilter{}, nil) {
		break
	}
}

// CountJobs agrees with ListJobs up to its limit.
func TestCountJobs(t *testing.T) {
	honkertest.Bubble(t, func(t *testing.T, db *honker.DB) { // time stands still, so no budget runs out
		ctx := context.Background()
		many(t, db, 3000)
		for name, f := range map[string]admin.JobFilter{
			"all": {}, "a queue": {Queues: []string{"a"}}, "a text": {Contains: "7"}, "dead": {Phases: []honker.Phase{honker.PhaseDead}},
			"none": {Queues: []string{"c"}}, "ids": {IDs: []int64{1, 2, 3, 3, 4000}},
			"ready": {Queues: []string{"b"}, Phases: []honker.Phase{honker.PhaseReady, honker.PhaseExpired}},
		} {
			n := len(pages(t, db, f, admin.PageOptions{Limit: 1000}))
			for _, limit := range []int{0, 1, n - 1, n, n + 1} {
				c, err := admin.CountJobs(ctx, db, f, max(limit, 0))
				require.NoError(t, err)
				want := honker.Count{N: int64(n)}
				if limit > 0 && n > limit {
					want = honker.Count{N: int64(limit), More: true}
				}
				require.Equal(t, want, c, "%s up to %d", name, limit)
			}
		}
	})
}

// Invalid input is rejected without a read.
func TestListJobs_BadInput(t *testing.T) {
	ctx, db, _, _ := open(t)
	many(t, db, 10)
	var none context.Context
	a := admin.JobFilter{Queues: []string{"a"}}
	for name, o := range map[string]admin.PageOptions{
		"a negative limit":     {Limit: -1},
		"a page of 1001 jobs":  {Limit: 1001},
		"a negative budget":    {Budget: -1},
		"no order":             {Order: 9},
		"an order below":       {Order: -1},
		"a cursor of no list":  {After: "AAAA"},
		"claims of dead jobs":  {Order: admin.ClaimOrder},
		"deaths of ready ones": {Order: admin.LastDiedFirst},
	} {
		f := a
		switch name {
		case "claims of dead jobs":
			f.Phases = []honker.Phase{honker.PhaseReady, honker.PhaseDead}
		case "deaths of ready ones":
			f.Phases = []honker.Phase{honker.PhaseReady}
		}
		_, err := admin.ListJobs(ctx, db, f, &o)
		require.ErrorIs(t, err, honker.ErrInvalid, name)
		for _, err := range admin.EachJob(ctx, db, f, &o) {
			require.ErrorIs(t, err, honker.ErrInvalid, name)
		}
	}
	for name, f := range map[string]admin.JobFilter{
		"no such phase":      {Phases: []honker.Phase{"asleep"}},
		"a queue of no name": {Queues: []string{""}},
		"a header of quotes": {Header: map[string]string{`a"b`: "1"}},
		"a negative batch":   {Batch: -1},
	} {
		_, err := admin.ListJobs(ctx, db, f, nil)
		require.ErrorIs(t, err, honker.ErrInvalid, name)
		_, err = admin.CountJobs(ctx, db, f, 0)
		require.ErrorIs(t, err, honker.ErrInvalid, name)
	}
	for _, queues := range [][]string{nil, {"a", "b"}} {
		_, err := admin.ListJobs(ctx, db, admin.JobFilter{Queues: queues}, &admin.PageOptions{Order: admin.ClaimOrder})
		require.ErrorIs(t, err, honker.ErrInvalid, "the order is that of one queue")
	}
	_, err := admin.CountJobs(ctx, db, a, -1)
	require.ErrorIs(t, err, honker.ErrInvalid)
	_, err = admin.ListJobs(none, db, a, nil)
	require.ErrorIs(t, err, honker.ErrInvalid)
	_, err = admin.ListJobs(ctx, nil, a, nil)
	require.ErrorIs(t, err, honker.ErrInvalid)
	_, err = admin.CountJobs(ctx, nil, a, 0)
	require.ErrorIs(t, err, honker.ErrInvalid)
}

// A change rejects phases that it cannot change.
func TestActions_Phases(t *testing.T) {
	ctx, db, q, _ := open(t)
	dead := bury(t, q, 1, "no")
	ready := testkit.Enqueue(t, q, 2)
	later := testkit.Enqueue(t, q, 3, honker.Delay(time.Hour))
	of := func(p ...honker.Phase) admin.JobFilter { return admin.JobFilter{Phases: p} }
	for name, verb := range map[string]func() (*admin.Report, error){
		"requeue": func() (*admin.Report, error) {
			return admin.Requeue(ctx, db, of(honker.PhaseDead, honker.PhaseReady), nil)
		},
		"discard": func() (*admin.Report, error) { return admin.Discard(ctx, db, of(honker.PhaseDone), nil) },
		"cancel":  func() (*admin.Report, error) { return admin.Cancel(ctx, db, of(honker.PhaseDead), nil) },
		"run now": func() (*admin.Report, error) { return admin.RunNow(ctx, db, of(honker.PhaseDead), nil) },
		"nothing": func() (*admin.Report, error) { return admin.Cancel(ctx, db, of(), nil) },
	} {
		_, err := verb()
		require.ErrorIs(t, err, honker.ErrInvalid, name)
	}
	r, err := admin.Cancel(ctx, db, of(honker.PhaseReady), nil)
	require.NoError(t, err)
	require.EqualValues(t, 1, r.Changed)
	require.Equal(t, []int64{later, dead}, pages(t, db, admin.JobFilter{}, admin.PageOptions{}), "%d is gone", ready)
	r, err = admin.RunNow(ctx, db, of(honker.PhaseScheduled), nil)
	require.NoError(t, err)
	require.EqualValues(t, 1, r.Changed)
	r, err = admin.Requeue(ctx, db, of(honker.PhaseDead), nil)
	require.NoError(t, err)
	require.EqualValues(t, 1, r.Changed)
}
