package store_test

import (
	"cmp"
	"database/sql"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite"
	"github.com/honker-go/honker/internal/sqlite/store/jobs"
)

const randomTables = 600 / slower

// TestClaim_AsHonker runs our claim and honker's on the same rows, second by second. They must choose the same jobs,
// but may differ in two ways:
//
//   - With ours, a job with a lapsed claim that isn't claimed again immediately waits as 'pending'. honker leaves it
//     as 'processing', which it also claims.
//   - With ours, an expired job with a lapsed claim moves to the dead letters as 'expired'. None of honker's
//     statements ever touch it again.
func TestClaim_AsHonker(t *testing.T) {
	honkers := openPlain(t, newPath(t))
	honkerBootstrap(t, honkers)
	fresh, shared := openFresh(t), openShared(t)
	s := seed(t)
	var seen pair
	for i := range randomTables {
		g := newTable(s, i)
		ours := fresh
		if g.rng.IntN(2) == 0 {
			ours = shared
		}
		p := &pair{t: t, number: i, honker: begin(t, honkers), ours: begin(t, ours), released: map[int64]bool{}, zombies: map[int64]row.Job{}}
		p.fill(g.rows())
		for range 3 {
			p.claim(pick(g.rng, "a", "a", "b"), 1+i%8, g.now, g.now+g.rng.Int64N(4))
			g.now += pick[int64](g.rng, 0, 1, 2, 5)
		}
		seen.add(p)
		require.NoError(t, p.honker.Rollback())
		require.NoError(t, p.ours.Rollback())
	}
	for name, n := range map[string]int{"claims": seen.claimed, "deaths": seen.dead, "released": seen.releases, "zombies": seen.swept} {
		requireMet(t, n, name)
	}
}

// requireMet requires that enough of the n random tables have exercised a property, because a property may hold
// simply because nothing happened. A run under the race detector has too few tables to require this.
func requireMet(t *testing.T, n int, what string) {
	t.Helper()
	require.GreaterOrEqual(t, n, randomTables/100, "the tables are too tame: few %s", what)
}

// pair holds the same table twice and tracks the known differences between the two.
type pair struct {
	t            *testing.T
	number       int
	honker, ours *sql.Tx
	released     map[int64]bool
	zombies      map[int64]row.Job

	claimed, dead, releases, swept int
}

func (p *pair) add(o *pair) {
	p.claimed += o.claimed
	p.dead += o.dead
	p.releases += len(o.released)
	p.swept += len(o.zombies)
}

func (p *pair) fill(r []fixture) {
	writeRows(p.t, p.honker, r)
	writeRows(p.t, p.ours, r)
}

func (p *pair) claim(queue string, n int, now, expires int64) {
	p.t.Helper()
	want := honkerClaim(p.t, p.honker, queue, "me", n, now, expires)
	got, _, err := claim(p.ours, queue, "me", n, now, expires)
	require.NoError(p.t, err)
	require.Equal(p.t, idsOf(want, rowID), idsOf(got, jobID), "table %d: claimed, in order", p.number)
	for i, j := range got {
		require.Equal(p.t, want[i], asRow(*j), "table %d: what the claim says of the job", p.number)
	}
	live := p.expectLive(queue, now)
	require.Equal(p.t, live, liveRows(p.t, p.ours), "table %d: the live", p.number)
	dead := deadRows(p.t, p.honker)
	for id, j := range p.zombies {
		dead[id] = j
	}
	require.Equal(p.t, dead, deadRows(p.t, p.ours), "table %d: the dead", p.number)
	p.claimed += len(got)
	p.dead = len(dead)
}

// expectLive returns honker's table after its claim on queue, adjusted for the two differences.
func (p *pair) expectLive(queue string, now int64) []fixture {
	live := []fixture{}
	for _, r := range liveRows(p.t, p.honker) {
		if _, gone := p.zombies[r.ID]; gone {
			continue
		}
		switch {
		case !r.lapsed(now):
			delete(p.released, r.ID) // claimed again, or never lapsed
			live = append(live, r)
		case p.released[r.ID]: // released by an earlier claim; it may have expired since
			live = append(live, r.released())
		case r.Queue != queue:
			live = append(live, r)
		case r.expired(now):
			p.zombies[r.ID] = r.dead(row.ReasonExpired, now)
		default:
			p.released[r.ID] = true
			live = append(live, r.released())
		}
	}
	return live
}

func asRow(j row.Job) fixture {
	return fixture{ID: j.ID, Queue: j.Queue, Payload: j.Payload.(string), State: j.State, Priority: j.Priority, RunAt: row.Unix(j.RunAt),
		Worker:       sql.NullString{String: j.WorkerID, Valid: j.WorkerID != ""},
		ClaimExpires: sql.NullInt64{Int64: row.Unix(j.ClaimExpiresAt), Valid: !j.ClaimExpiresAt.IsZero()},
		Attempts:     j.Attempts, MaxAttempts: j.MaxAttempts, CreatedAt: row.Unix(j.CreatedAt),
		ExpiresAt: sql.NullInt64{Int64: row.Unix(j.ExpiresAt), Valid: !j.ExpiresAt.IsZero()}}
}

// Claim takes the job with the highest of many priorities. The claim has a LIMIT without ORDER BY and relies on the
// order in which SQLite walks a CROSS JOIN. With as many priorities as rows, the test fails if it walks in any other
// order.
func TestClaim_HighestPriority(t *testing.T) {
	for name, db := range map[string]*sql.DB{"fresh file": openFresh(t), "file of a honker binding": openShared(t)} {
		t.Run(name, func(t *testing.T) {
			s := seed(t)
			for i := range max(2, 40/slower) {
				g := newTable(s, i)
				g.size, g.levels = 200, make([]int64, 60)
				for l := range g.levels {
					g.levels[l] = g.rng.Int64N(1_000_000) - 500_000
				}
				tx := begin(t, db)
				writeRows(t, tx, g.rows())
				expectOrder(t, tx, g)
				require.NoError(t, tx.Rollback())
			}
		})
	}
}

// expectOrder drains queue "a" in small claims and compares the order with a sort in Go.
func expectOrder(t *testing.T, tx *sql.Tx, g table) {
	t.Helper()
	_, _, err := claim(tx, "a", "w", 0, g.now, g.now+9) // settles overdue jobs
	require.NoError(t, err)
	want := slices.DeleteFunc(liveRows(t, tx), func(r fixture) bool {
		return r.Queue != "a" || r.State != "pending" || r.RunAt > g.now || r.expired(g.now) || r.Attempts >= r.MaxAttempts
	})
	slices.SortFunc(want, func(a, b fixture) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.RunAt, b.RunAt), cmp.Compare(a.ID, b.ID))
	})
	got := []int64{}
	for {
		jobs, _, err := claim(tx, "a", "w", 1+g.rng.IntN(7), g.now, g.now+9)
		require.NoError(t, err)
		if len(jobs) == 0 {
			break
		}
		got = append(got, idsOf(jobs, jobID)...)
	}
	require.Equal(t, idsOf(want, rowID), got)
}

// A claim that takes no jobs still settles overdue jobs.
func TestClaim_Overdue_Settled(t *testing.T) {
	tx := begin(t, openFresh(t))
	writeRows(t, tx, []fixture{claimedRow(1, 9, 3), claimedRow(2, 9, 1), claimedRow(3, 10, 3)})
	jobs, _, err := claim(tx, "a", "w", 0, 10, 20)
	require.NoError(t, err)
	require.Empty(t, jobs)
	require.Equal(t, []fixture{claimedRow(1, 9, 3).released(), claimedRow(3, 10, 3)}, liveRows(t, tx))
	require.Equal(t, map[int64]row.Job{2: claimedRow(2, 9, 1).dead(row.ReasonExhausted, 10)}, deadRows(t, tx))
}

// claimedRow returns a job on its first of maxAttempts attempts.
func claimedRow(id, claimExpires, maxAttempts int64) fixture {
	return fixture{ID: id, Queue: "a", Payload: "1", State: "processing", RunAt: 1, CreatedAt: 1, Attempts: 1,
		MaxAttempts: maxAttempts, Worker: sql.NullString{String: "old", Valid: true},
		ClaimExpires: sql.NullInt64{Int64: claimExpires, Valid: true}}
}

// A claim settles at most a thousand overdue jobs, so that a large worker's crash does not make the
// next claim a long transaction.
func TestClaim_Overdue_Bounded(t *testing.T) {
	tx := begin(t, openFresh(t))
	var r []fixture
	for id := range int64(2400) {
		r = append(r, claimedRow(id+1, 5, 1+id%2)) // every second job is exhausted
	}
	writeRows(t, tx, r)
	for _, left := range []struct{ live, dead string }{{"1400", "1000"}, {"1200", "1200"}} {
		_, _, err := claim(tx, "a", "w", 0, 10, 20)
		require.NoError(t, err)
		require.Equal(t, left.live, value(t, tx, `SELECT count(*) FROM _honker_live`))
		require.Equal(t, left.dead, value(t, tx, `SELECT count(*) FROM _honker_dead`))
	}
	require.Equal(t, "0", value(t, tx, `SELECT count(*) FROM _honker_live WHERE state = 'processing'`))
}

// A lapsed job whose run_at is in the future, because the clock was set back, waits for that time.
// honker would run it immediately.
func TestClaim_LapsedRunAtAhead(t *testing.T) {
	tx := begin(t, openFresh(t))
	r := claimedRow(1, 9, 3)
	r.RunAt = 12
	writeRows(t, tx, []fixture{r})
	for _, at := range []struct{ now, jobs int64 }{{10, 0}, {11, 0}, {12, 1}} {
		jobs, _, err := claim(tx, "a", "w", 1, at.now, 20)
		require.NoError(t, err)
		require.Len(t, jobs, int(at.jobs), "at %d", at.now)
	}
}

// A claimed job carries its last attempt's error.
func TestClaim_LastError(t *testing.T) {
	tx := begin(t, openFresh(t))
	writeRows(t, tx, []fixture{claimedRow(1, 9, 3)})
	_, _, err := jobs.Jobs{}.Retry(ctx, tx, row.Claim{ID: 1, Worker: "old", Attempt: 1}, 9, "no route", 8)
	require.NoError(t, err)
	jobs, _, err := claim(tx, "a", "w", 1, 10, 20)
	require.NoError(t, err)
	require.Len(t, jobs, 1)
	require.Equal(t, "no route", jobs[0].LastError)
}

// A claim returns ErrStuck if a trigger keeps rows from changing, because a worker that checked again immediately
// would find them ready forever. Other jobs in the queue are still claimed.
func TestClaim_Trigger_Stuck(t *testing.T) {
	for what, trigger := range map[string]string{
		"a due job":    `BEFORE UPDATE ON _honker_live WHEN OLD.id = 1`,
		"a lapsed job": `BEFORE UPDATE ON _honker_live WHEN OLD.id = 2`,
		"a spent job":  `BEFORE DELETE ON _honker_live WHEN OLD.id = 3`,
		"a dead job":   `BEFORE INSERT ON _honker_dead WHEN NEW.id = 3`,
	} {
		tx := begin(t, openFresh(t))
		fixtures := map[string]fixture{"a due job": pendingRow(1), "a lapsed job": claimedRow(2, 5, 3), "a spent job": claimedRow(3, 5, 1), "a dead job": claimedRow(3, 5, 1)}
		writeRows(t, tx, []fixture{fixtures[what]})
		exec(t, tx, `CREATE TRIGGER keep `+trigger+` BEGIN SELECT RAISE(IGNORE); END`)
		before := liveRows(t, tx)
		exec(t, tx, `SAVEPOINT claim`)
		_, _, err := claim(tx, "a", "w", 1, 10, 20)
		require.ErrorIs(t, err, row.ErrStuck, what)
		require.True(t, sqlite.IsConstraint(err))
		exec(t, tx, `ROLLBACK TO claim`)
		if what != "a due job" {
			_, err := jobs.Jobs{}.SettleOverdue(ctx, tx, "a", 10)
			require.ErrorIs(t, err, row.ErrStuck, what)
			exec(t, tx, `ROLLBACK TO claim`)
		}
		require.Equal(t, before, liveRows(t, tx))
		require.Empty(t, deadRows(t, tx), "in both tables")
		if what == "a spent job" { // a statement can't undo half of a move
			continue
		}
		writeRows(t, tx, []fixture{pendingRow(9)})
		jobs, _, err := claim(tx, "a", "w", 2, 10, 20)
		require.NoError(t, err, what)
		require.Len(t, jobs, 1)
	}
}

// pendingRow returns a job that is due.
func pendingRow(id int64) fixture {
	return fixture{ID: id, Queue: "a", Payload: "1", State: "pending", RunAt: 1, CreatedAt: 1, MaxAttempts: 3}
}
