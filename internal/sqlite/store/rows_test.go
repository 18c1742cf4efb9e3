package store_test

import (
	"database/sql"
	"encoding/json"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/jobs"
	"github.com/honker-go/honker/internal/sqlite/store/rows"
)

// A fixture is a row of _honker_live that can be compared.
type fixture struct {
	ID           int64
	Queue        string
	Payload      string
	State        string
	Priority     int64
	RunAt        int64
	Worker       sql.NullString
	ClaimExpires sql.NullInt64
	Attempts     int64
	MaxAttempts  int64
	CreatedAt    int64
	ExpiresAt    sql.NullInt64
}

func (r fixture) lapsed(now int64) bool {
	return r.State == "processing" && r.ClaimExpires.Int64 < now
}

func (r fixture) expired(now int64) bool { return r.ExpiresAt.Valid && r.ExpiresAt.Int64 <= now }

// released returns r as our claim leaves it after its worker's claim has lapsed.
func (r fixture) released() fixture {
	r.State, r.Worker, r.ClaimExpires = "pending", sql.NullString{}, sql.NullInt64{}
	return r
}

// dead returns r as it appears in _honker_dead.
func (r fixture) dead(cause string, now int64) row.Job {
	return row.Job{ID: r.ID, Queue: r.Queue, State: "dead", Payload: r.Payload, Priority: r.Priority,
		RunAt: row.Instant(r.RunAt), Attempts: r.Attempts, MaxAttempts: r.MaxAttempts, CreatedAt: row.Instant(r.CreatedAt),
		LastError: cause, DiedAt: row.Instant(now)}
}

// table describes random rows around now. Every boundary value occurs often.
type table struct {
	rng    *rand.Rand
	now    int64
	levels []int64 // priorities in use
	size   int     // maximum number of rows
}

func newTable(seed uint64, n int) table {
	return table{rng: rand.New(rand.NewPCG(seed, uint64(n))), now: 1_000_000, levels: []int64{-2, 0, 0, 7}, size: 30}
}

func pick[T any](rng *rand.Rand, of ...T) T { return of[rng.IntN(len(of))] }

func (g table) near() int64 { return g.now + pick[int64](g.rng, -50, -2, -1, 0, 1, 2, 9) }

func (g table) rows() []fixture {
	r := make([]fixture, g.rng.IntN(g.size+1))
	for i := range r {
		r[i] = g.row(int64(i + 1))
	}
	return r
}

func (g table) row(id int64) fixture {
	r := fixture{
		ID: id, Queue: pick(g.rng, "a", "a", "b"), Payload: `{"n":1}`, State: "pending",
		Priority: pick(g.rng, g.levels...), RunAt: g.near(), CreatedAt: g.now - 60,
		Attempts: g.rng.Int64N(4), MaxAttempts: pick[int64](g.rng, 0, 1, 2, 3, 5, 9),
	}
	if g.rng.IntN(2) == 0 {
		r.State = "processing"
		// The job was due when it was claimed, unless the clock was set back.
		r.RunAt = g.now - g.rng.Int64N(4)
		r.Worker = sql.NullString{String: pick(g.rng, "old", "older"), Valid: true}
		r.ClaimExpires = sql.NullInt64{Int64: g.near(), Valid: true}
		r.Attempts = max(r.Attempts, 1)
	}
	if g.rng.IntN(5) < 2 {
		r.ExpiresAt = sql.NullInt64{Int64: g.near(), Valid: true}
	}
	return r
}

// newJob returns a job that is due.
func (g table) newJob() jobs.NewJob {
	return jobs.NewJob{Queue: "a", Priority: pick(g.rng, g.levels...), RunAt: g.now, MaxAttempts: 1 + g.rng.Int64N(3),
		CreatedAt: g.now, ExpiresAt: pick[int64](g.rng, 0, g.now+1, g.now+9)}
}

const rowColumns = `id, queue, payload, state, priority, run_at, worker_id, claim_expires_at,
  attempts, max_attempts, created_at, expires_at`

// writeRows inserts all rows in a single statement.
func writeRows(t *testing.T, q row.Querier, rs []fixture) {
	t.Helper()
	values := make([][]any, len(rs))
	for i, r := range rs {
		values[i] = []any{r.ID, r.Queue, r.Payload, r.State, r.Priority, r.RunAt, orNil(r.Worker.Valid, r.Worker.String),
			orNil(r.ClaimExpires.Valid, r.ClaimExpires.Int64), r.Attempts, r.MaxAttempts, r.CreatedAt,
			orNil(r.ExpiresAt.Valid, r.ExpiresAt.Int64)}
	}
	text, err := json.Marshal(values)
	require.NoError(t, err)
	exec(t, q, `INSERT INTO _honker_live (`+rowColumns+`)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6, value ->> 7,
  value ->> 8, value ->> 9, value ->> 10, value ->> 11 FROM json_each(?1)`, string(text))
}

func orNil(valid bool, v any) any {
	if !valid {
		return nil
	}
	return v
}

func readRows(t *testing.T, q row.Querier, tail string, args ...any) []fixture {
	t.Helper()
	rs, err := q.QueryContext(ctx, `SELECT `+rowColumns+` FROM _honker_live `+tail, args...)
	require.NoError(t, err)
	defer rs.Close()
	out := []fixture{}
	for rs.Next() {
		var r fixture
		require.NoError(t, rs.Scan(&r.ID, &r.Queue, &r.Payload, &r.State, &r.Priority, &r.RunAt, &r.Worker,
			&r.ClaimExpires, &r.Attempts, &r.MaxAttempts, &r.CreatedAt, &r.ExpiresAt))
		out = append(out, r)
	}
	require.NoError(t, rs.Err())
	return out
}

func liveRows(t *testing.T, q row.Querier) []fixture {
	t.Helper()
	return readRows(t, q, `ORDER BY id`)
}

func liveRow(t *testing.T, q row.Querier, id int64) fixture {
	t.Helper()
	r := readRows(t, q, `WHERE id = ?1`, id)
	require.Len(t, r, 1)
	return r[0]
}

// deadRows returns the dead letters by ID.
func deadRows(t *testing.T, q row.Querier) map[int64]row.Job {
	t.Helper()
	r, err := q.QueryContext(ctx, `SELECT id, queue, payload, priority, run_at, attempts, max_attempts,
  coalesce(last_error, ''), created_at, died_at FROM _honker_dead`)
	require.NoError(t, err)
	defer r.Close()
	out := make(map[int64]row.Job)
	for r.Next() {
		j := row.Job{State: "dead"}
		require.NoError(t, r.Scan(&j.ID, &j.Queue, &j.Payload, &j.Priority, (*rows.Second)(&j.RunAt), &j.Attempts, &j.MaxAttempts,
			&j.LastError, (*rows.Second)(&j.CreatedAt), (*rows.Second)(&j.DiedAt)))
		out[j.ID] = j
	}
	require.NoError(t, r.Err())
	return out
}

func idsOf[T any](of []T, id func(T) int64) []int64 {
	out := make([]int64, len(of))
	for i, v := range of {
		out[i] = id(v)
	}
	return out
}

func jobID(j *row.Job) int64 { return j.ID }
func rowID(r fixture) int64  { return r.ID }
