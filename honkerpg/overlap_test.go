//go:build unix

package honkerpg_test

import (
	"context"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkerpg/internal/pgtest"
)

// ran counts the runs of jobs by their arguments.
type ran struct {
	mu    sync.Mutex
	times map[int]int
	n     int
}

// add counts a run and returns the number of all runs.
func (r *ran) add(job int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.times[job]++
	r.n++
	return r.n
}

// left returns the numbers of jobs that wait and that are claimed.
func left(t *testing.T, db *honker.DB, schema string) (waiting, claimed int) {
	t.Helper()
	err := db.SQL().QueryRowContext(t.Context(), `SELECT count(*) FILTER (WHERE state = 0), count(*) FILTER (WHERE state = 1) FROM `+pgx.Identifier{schema, "job"}.Sanitize()).Scan(&waiting, &claimed)
	require.NoError(t, err)
	return waiting, claimed
}

func numbers(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// Two steps of a Work with many jobs are under way at a time, and no more. Each job runs once.
func TestWorkOverlaps(t *testing.T) {
	const n = 20_000
	schema := pgtest.Schema(t)
	db, tracer := openTraced(t, schema)
	q := honker.NewQueue[int](db, "a", nil)
	_, err := q.EnqueueMany(t.Context(), numbers(n))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r := ran{times: map[int]int{}}
	require.NoError(t, q.Work(ctx, func(_ context.Context, job *honker.Job[int]) error {
		if r.add(job.Args) == n {
			cancel()
		}
		return nil
	}, &honker.WorkOptions{Workers: 8}))
	require.Len(t, r.times, n)
	require.Equal(t, n, r.n, "each job runs once")
	waiting, claimed := left(t, db, schema)
	require.Zero(t, waiting+claimed)
	require.Equal(t, 2, tracer.mostSteps)
}

// The jobs of a Work with a single worker start in the order of claims, although its steps overlap.
func TestWorkOverlapsInOrder(t *testing.T) {
	const n = 5000
	db, tracer := openTraced(t, pgtest.Schema(t))
	q := honker.NewQueue[int](db, "a", nil)
	_, err := q.EnqueueMany(t.Context(), numbers(n))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var order []int
	require.NoError(t, q.Work(ctx, func(_ context.Context, job *honker.Job[int]) error {
		if order = append(order, job.Args); len(order) == n {
			cancel()
		}
		return nil
	}, &honker.WorkOptions{Workers: 1}))
	require.Equal(t, numbers(n), order)
	require.Equal(t, 2, tracer.mostSteps)
}

// A Work that ends while steps are under way settles the jobs that have run, and releases the others, including those
// that the last steps have claimed.
func TestWorkOverlapsEnd(t *testing.T) {
	const n = 5000
	schema := pgtest.Schema(t)
	db, _ := openTraced(t, schema)
	q := honker.NewQueue[int](db, "a", nil)
	_, err := q.EnqueueMany(t.Context(), numbers(n))
	require.NoError(t, err)
	r := ran{times: map[int]int{}}
	for end := 500; end < n; end += 500 {
		ctx, cancel := context.WithCancel(t.Context())
		require.NoError(t, q.Work(ctx, func(_ context.Context, job *honker.Job[int]) error {
			if r.add(job.Args) == end {
				cancel()
			}
			return nil
		}, &honker.WorkOptions{Workers: 8}))
		cancel()
		waiting, claimed := left(t, db, schema)
		require.Zero(t, claimed, "all claims have ended")
		require.Equal(t, n-r.n, waiting)
		require.Len(t, r.times, r.n, "no job has run twice")
	}
}

// A step that fails is repeated with the same settles, while another is under way.
func TestWorkOverlapsFailures(t *testing.T) {
	const n = 5000
	schema := pgtest.Schema(t)
	db, _ := openTraced(t, schema)
	q := honker.NewQueue[int](db, "a", nil)
	_, err := q.EnqueueMany(t.Context(), numbers(n))
	require.NoError(t, err)
	name := func(name string) string { return pgx.Identifier{schema, name}.Sanitize() }
	exec := func(statement string) {
		_, err := db.SQL().ExecContext(t.Context(), statement)
		require.NoError(t, err)
	}
	exec(`CREATE SEQUENCE ` + name("deletes"))
	exec(`CREATE FUNCTION ` + name("fails") + `() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  IF nextval('` + name("deletes") + `') % 997 = 0 THEN RAISE EXCEPTION 'now and then'; END IF;
  RETURN OLD;
END $$`)
	exec(`CREATE TRIGGER fails BEFORE DELETE ON ` + name("job") + ` FOR EACH ROW EXECUTE FUNCTION ` + name("fails") + `()`)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r := ran{times: map[int]int{}}
	require.NoError(t, q.Work(ctx, func(_ context.Context, job *honker.Job[int]) error {
		if r.add(job.Args) == n {
			cancel()
		}
		return nil
	}, &honker.WorkOptions{Workers: 8}))
	require.Len(t, r.times, n)
	require.Equal(t, n, r.n, "a settle that fails does not lose its claims")
	waiting, claimed := left(t, db, schema)
	require.Zero(t, waiting+claimed)
}
