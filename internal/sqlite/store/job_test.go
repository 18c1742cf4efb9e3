package store_test

import (
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/jobs"
)

var newJob = jobs.NewJob{Queue: "a", Priority: 3, RunAt: 7, MaxAttempts: 5, CreatedAt: 6, ExpiresAt: 90}

// A batch's IDs increase in the order of its payloads.
func TestLive_BatchIDsRise(t *testing.T) {
	db := openFresh(t)
	for _, n := range []int{0, 1, 3, 4, 31, 32, 33, 255, 256, 257, 1000} {
		tx := begin(t, db)
		_, err := jobs.Jobs{}.InsertOne(ctx, tx, newJob, `"first"`)
		require.NoError(t, err)
		payloads := make([]string, n)
		wantIDs := make([]int64, n)
		want := []string{`1|"first"`}
		for i := range payloads {
			payloads[i], wantIDs[i] = fmt.Sprintf(`"p%d"`, i), int64(i+2)
			want = append(want, fmt.Sprintf("%d|%s", wantIDs[i], payloads[i]))
		}
		ids, err := jobs.Jobs{}.InsertMany(ctx, tx, newJob, payloads)
		require.NoError(t, err)
		require.Equal(t, wantIDs, ids, "%d jobs", n)
		require.Equal(t, want, lines(t, tx, `SELECT id, payload FROM _honker_live ORDER BY id`), "%d jobs", n)
		require.NoError(t, tx.Rollback())
	}
}

// A batch and a single enqueue write identical rows.
func TestLive_BatchAsSingle(t *testing.T) {
	tx := begin(t, openFresh(t))
	one, err := jobs.Jobs{}.InsertOne(ctx, tx, newJob, "1")
	require.NoError(t, err)
	many, err := jobs.Jobs{}.InsertMany(ctx, tx, newJob, []string{"1", "1", "1", "1", "1"})
	require.NoError(t, err)
	want := fixture{ID: one, Queue: "a", Payload: "1", State: "pending", Priority: 3, RunAt: 7, MaxAttempts: 5, CreatedAt: 6,
		ExpiresAt: sql.NullInt64{Int64: 90, Valid: true}}
	require.Equal(t, want, liveRow(t, tx, one))
	for _, id := range many {
		want.ID = id
		require.Equal(t, want, liveRow(t, tx, id))
	}
}

// InsertClaimed has the same effect as an enqueue followed by a claim of that job, with a unique key or without. If the claim
// would have done anything else on the same random rows, InsertClaimed inserts nothing.
func TestLive_ClaimedAtInsert(t *testing.T) {
	s, db := seed(t), openFresh(t)
	var inserted, refused int
	for i := range randomTables {
		g := newTable(s, i)
		g.size = 5
		r, j := g.rows(), g.newJob()
		var u *jobs.Unique
		if i%2 == 1 {
			u = &jobs.Unique{Key: "k", NowMS: 1000 * g.now}
		}
		tx := begin(t, db)
		writeRows(t, tx, r)
		got, err := jobs.Jobs{}.InsertClaimed(ctx, tx, j, "1", u, "me", g.now+9)
		require.NoError(t, err)
		live := liveRows(t, tx)
		require.NoError(t, tx.Rollback())

		tx = begin(t, db)
		writeRows(t, tx, r)
		overdue, err := jobs.Jobs{}.Overdue(ctx, tx, j.Queue, g.now)
		require.NoError(t, err)
		if u == nil {
			_, err = jobs.Jobs{}.InsertOne(ctx, tx, j, "1")
		} else {
			_, err = jobs.Jobs{}.InsertUnique(ctx, tx, j, "1", *u)
		}
		require.NoError(t, err)
		want, _, err := claim(tx, j.Queue, "me", 99, g.now, g.now+9)
		require.NoError(t, err)
		require.Equal(t, !overdue && len(want) == 1, got != nil, "table %d", i)
		if got != nil {
			inserted++
			require.Equal(t, want[0], got, "table %d", i)
			require.Equal(t, liveRows(t, tx), live, "table %d", i)
		} else {
			refused++
			require.Equal(t, r, live, "table %d", i)
		}
		require.NoError(t, tx.Rollback())
	}
	requireMet(t, inserted, "claimed from the first")
	requireMet(t, refused, "queues with other jobs")
}

// A job without an expiry never expires.
func TestLive_NoExpiry(t *testing.T) {
	tx := begin(t, openFresh(t))
	j := newJob
	j.ExpiresAt = 0
	id, err := jobs.Jobs{}.InsertOne(ctx, tx, j, "1")
	require.NoError(t, err)
	require.False(t, liveRow(t, tx, id).ExpiresAt.Valid)
}

// IDs are never reused. Dead letters, results and offsets rely on this.
func TestLive_IDsNeverReused(t *testing.T) {
	tx := begin(t, openFresh(t))
	first, err := jobs.Jobs{}.InsertOne(ctx, tx, newJob, "1")
	require.NoError(t, err)
	_, err = jobs.Jobs{}.Cancel(ctx, tx, "a", first, time.Unix(0, 0))
	require.NoError(t, err)
	second, err := jobs.Jobs{}.InsertOne(ctx, tx, newJob, "1")
	require.NoError(t, err)
	require.Greater(t, second, first)
}

// A payload is stored as text.
func TestLive_Payload_Text(t *testing.T) {
	tx := begin(t, openFresh(t))
	for _, payload := range []string{"", "null", `"ü\u0000<>&"`, "\u2028", "12", "not json"} {
		id, err := jobs.Jobs{}.InsertOne(ctx, tx, newJob, payload)
		require.NoError(t, err)
		require.Equal(t, "text|"+payload, value(t, tx, `SELECT typeof(payload), payload FROM _honker_live WHERE id = ?1`, id))
	}
}

// A claim returns a job whose payload is a BLOB, which another binding or an operator may have
// stored.
func TestLive_Payload_Blob(t *testing.T) {
	tx := begin(t, openFresh(t))
	exec(t, tx, `INSERT INTO _honker_live (queue, payload, run_at) VALUES ('a', x'0102', 1), ('a', '"t"', 2)`)
	claimed, _, err := claim(tx, "a", "w", 9, 10, 20)
	require.NoError(t, err)
	require.Len(t, claimed, 2)
	require.Equal(t, []byte{1, 2}, claimed[0].Payload)
	require.Equal(t, `"t"`, claimed[1].Payload)
	moved, err := jobs.Jobs{}.DeadLetter(ctx, tx, row.Claim{ID: 1, Worker: "w", Attempt: 1}, "x", 11)
	require.NoError(t, err)
	require.True(t, moved)
	require.Equal(t, "blob", value(t, tx, `SELECT typeof(payload) FROM _honker_dead`), "not lost")
}

// A job inserted by a plain INSERT, a documented way to enqueue, can be claimed.
func TestLive_PlainInsert(t *testing.T) {
	path := newPath(t)
	db := openBootstrapped(t, path)
	exec(t, openPlain(t, path), `INSERT INTO _honker_live (queue, payload) VALUES ('a', '1')`)
	jobs, _, err := claim(db, "a", "w", 1, 1<<40, 1<<40)
	require.NoError(t, err)
	require.Len(t, jobs, 1)
	require.EqualValues(t, 3, jobs[0].MaxAttempts)
}

// Get finds a job only on its own queue.
func TestLive_Get_OwnQueueOnly(t *testing.T) {
	tx := begin(t, openFresh(t))
	id, err := jobs.Jobs{}.InsertOne(ctx, tx, newJob, `"p"`)
	require.NoError(t, err)
	job, found, err := jobs.Jobs{}.Find(ctx, tx, id, "a")
	require.NoError(t, err)
	require.True(t, found)
	require.Equal(t, row.Job{ID: id, Queue: "a", State: "pending", Payload: `"p"`, Priority: 3, RunAt: row.Instant(7),
		MaxAttempts: 5, CreatedAt: row.Instant(6), ExpiresAt: row.Instant(90)}, job)
	for queue, number := range map[string]int64{"b": id, "a": id + 1} {
		_, found, err = jobs.Jobs{}.Find(ctx, tx, number, queue)
		require.NoError(t, err)
		require.False(t, found)
		cancelled, err := jobs.Jobs{}.Cancel(ctx, tx, queue, number, time.Unix(0, 0))
		require.NoError(t, err)
		require.False(t, cancelled)
	}
}

// Cancel deletes a claimed job. The job's worker finds out when it settles the job.
func TestJobs_Cancel_InFlight(t *testing.T) {
	tx := held(t, openFresh(t), heldRow())
	cancelled, err := jobs.Jobs{}.Cancel(ctx, tx, "a", 1, time.Unix(0, 0))
	require.NoError(t, err)
	require.True(t, cancelled)
	require.Empty(t, deadRows(t, tx))
	before := dump(t, tx)
	for _, s := range settles {
		got, err := s.perform(tx, mine, 10)
		require.NoError(t, err)
		require.False(t, got, s.name)
	}
	require.Equal(t, before, dump(t, tx))
}

func TestJobs_ForeignTriggers(t *testing.T) {
	for _, c := range []struct {
		name, on string
		want     bool
	}{
		{"_honkerx_audit", "_honker_live", false},
		{"_HONKERX_audit", "_HONKER_LIVE", false},
		{"xhonker", "_honker_live", true},
		{"ahonker_x", "_honker_live", true}, // _ is not a wildcard here
		{"audit", "_honker_live", true},
		{"audit", "_Honker_Live", true},
		{"audit", "_honker_stream", false},
	} {
		tx := begin(t, openFresh(t))
		exec(t, tx, `CREATE TRIGGER `+c.name+` AFTER INSERT ON `+c.on+` BEGIN SELECT 1; END`)
		got, err := jobs.Jobs{}.ForeignTriggers(ctx, tx)
		require.NoError(t, err)
		require.Equal(t, c.want, got, "%s on %s", c.name, c.on)
	}
	tx := begin(t, openFresh(t))
	exec(t, tx, `CREATE TEMP TRIGGER _honker_mine AFTER INSERT ON _honker_live BEGIN SELECT 1; END`)
	got, err := jobs.Jobs{}.ForeignTriggers(ctx, tx)
	require.NoError(t, err)
	require.True(t, got, "of this connection only")
	for _, open := range []func(*testing.T) *sql.DB{openFresh, openShared} {
		got, err := jobs.Jobs{}.ForeignTriggers(ctx, open(t))
		require.NoError(t, err)
		require.False(t, got)
	}
}
