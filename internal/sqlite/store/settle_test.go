package store_test

import (
	"database/sql"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/jobs"
)

// In these tests "me" holds job 1 in queue "a", on attempt 2 of 3, until second 20.
const lastValid = 20

var mine = row.Claim{ID: 1, Worker: "me", Attempt: 2}

func heldRow() fixture {
	return fixture{ID: 1, Queue: "a", Payload: `"p"`, State: "processing", Priority: 4, RunAt: 5, CreatedAt: 3,
		Attempts: 2, MaxAttempts: 3, Worker: sql.NullString{String: "me", Valid: true},
		ClaimExpires: sql.NullInt64{Int64: lastValid, Valid: true}, ExpiresAt: sql.NullInt64{Int64: 900, Valid: true}}
}

// held sets up that job, with an error from its first attempt, and another worker's job, which no test may change.
func held(t *testing.T, db *sql.DB, first fixture) *sql.Tx {
	t.Helper()
	tx := begin(t, db)
	other := heldRow()
	other.ID, other.Worker.String = 2, "other"
	writeRows(t, tx, []fixture{first, other})
	exec(t, tx, `INSERT INTO _honkerx_job (job_id, last_error) VALUES (1, 'first'), (2, 'other')`)
	return tx
}

// settle is a way to end or extend a claim. perform reports whether the claim was valid.
type settle struct {
	name    string
	fenced  bool // the attempt is compared as well
	perform func(q row.Querier, c row.Claim, now int64) (bool, error)
}

var settles = []settle{
	{"ack", true, func(q row.Querier, c row.Claim, now int64) (bool, error) {
		return jobs.Jobs{}.Ack(ctx, q, c, now)
	}},
	{"ack of one attempt", true, func(q row.Querier, c row.Claim, now int64) (bool, error) {
		n, err := jobs.Jobs{}.AckAttempt(ctx, q, []int64{77, c.ID}, c.Worker, c.Attempt, now)
		return n == 1, err
	}},
	{"ack of one attempt by ids", true, func(q row.Querier, c row.Claim, now int64) (bool, error) {
		ids, err := jobs.Jobs{}.AckAttemptIDs(ctx, q, []int64{77, c.ID}, c.Worker, c.Attempt, now)
		return slices.Contains(ids, c.ID), err
	}},
	{"ack of many", false, func(q row.Querier, c row.Claim, now int64) (bool, error) {
		n, err := ackMany(q, "a", []int64{77, c.ID}, c.Worker, now)
		return n == 1, err
	}},
	{"retry", true, func(q row.Querier, c row.Claim, now int64) (bool, error) {
		held, _, err := jobs.Jobs{}.Retry(ctx, q, c, 50, "again", now)
		return held, err
	}},
	{"dead-letter", true, func(q row.Querier, c row.Claim, now int64) (bool, error) {
		return jobs.Jobs{}.DeadLetter(ctx, q, c, "over", now)
	}},
	{"put back", true, func(q row.Querier, c row.Claim, now int64) (bool, error) {
		return jobs.Jobs{}.PutBack(ctx, q, c, 50, now)
	}},
	{"extend", true, func(q row.Querier, c row.Claim, now int64) (bool, error) {
		return jobs.Jobs{}.ExtendUntil(ctx, q, c, 60, now)
	}},
	{"renew", false, func(q row.Querier, c row.Claim, now int64) (bool, error) {
		ids, err := renew(q, []int64{77, c.ID}, c.Worker, now, 60)
		return slices.Contains(ids, c.ID), err
	}},
}

// A worker that doesn't hold the job, or no longer holds it, changes nothing.
func TestSettle_HolderOnly(t *testing.T) {
	dbs := []*sql.DB{openFresh(t), openShared(t)}
	for _, s := range settles {
		for _, c := range []struct {
			name  string
			claim row.Claim
			now   int64
			holds bool
		}{
			{"the holder", mine, 10, true},
			{"the holder in the last valid second", mine, lastValid, true},
			{"the holder one second later", mine, lastValid + 1, false},
			{"another worker", row.Claim{ID: 1, Worker: "other", Attempt: 2}, 10, false},
			{"no worker", row.Claim{ID: 1, Worker: "", Attempt: 2}, 10, false},
			{"an earlier attempt of the holder", row.Claim{ID: 1, Worker: "me", Attempt: 1}, 10, !s.fenced},
			{"a later attempt of the holder", row.Claim{ID: 1, Worker: "me", Attempt: 3}, 10, !s.fenced},
			{"the holder of another job", row.Claim{ID: 2, Worker: "me", Attempt: 2}, 10, false},
			{"the holder of no job", row.Claim{ID: 9, Worker: "me", Attempt: 2}, 10, false},
		} {
			t.Run(s.name+" by "+c.name, func(t *testing.T) {
				for _, db := range dbs {
					tx := held(t, db, heldRow())
					before := dump(t, tx)
					got, err := s.perform(tx, c.claim, c.now)
					require.NoError(t, err)
					require.Equal(t, c.holds, got)
					require.Equal(t, c.holds, !slices.Equal(before, dump(t, tx)), "it changed something")
					require.NoError(t, tx.Rollback())
				}
			})
		}
	}
}

// The attempt number fences a worker's own older claim, if the worker's lease lapsed and the worker
// claimed the job again.
func TestSettle_OlderClaimStale(t *testing.T) {
	db := openFresh(t)
	for _, s := range settles {
		if !s.fenced {
			continue
		}
		tx := held(t, db, heldRow())
		jobs, _, err := claim(tx, "a", "me", 1, lastValid+1, lastValid+60)
		require.NoError(t, err)
		require.Equal(t, []int64{1}, idsOf(jobs, jobID))
		before := dump(t, tx)
		got, err := s.perform(tx, mine, lastValid+2)
		require.NoError(t, err)
		require.False(t, got, s.name)
		require.Equal(t, before, dump(t, tx), s.name)
		require.NoError(t, tx.Rollback())
	}
}

// Ack removes the job and its side row.
func TestSettle_Ack(t *testing.T) {
	db := openFresh(t)
	for _, s := range settles[:4] {
		tx := held(t, db, heldRow())
		_, err := s.perform(tx, mine, 10)
		require.NoError(t, err)
		require.Equal(t, []int64{2}, idsOf(liveRows(t, tx), rowID), s.name)
		require.Empty(t, deadRows(t, tx), s.name)
		require.Equal(t, []string{"2|other"}, lines(t, tx, `SELECT job_id, last_error FROM _honkerx_job`), s.name)
		require.NoError(t, tx.Rollback())
	}
}

// AckMany acks only jobs in its own queue.
func TestSettle_AckMany_OwnQueue(t *testing.T) {
	tx := held(t, openFresh(t), heldRow())
	before := dump(t, tx)
	n, err := ackMany(tx, "b", []int64{1}, "me", 10)
	require.NoError(t, err)
	require.Zero(t, n)
	require.Equal(t, before, dump(t, tx))
}

// An ack of several jobs acks those with a valid claim.
func TestSettle_AckMany_Valid(t *testing.T) {
	db := openFresh(t)
	r := make([]fixture, 4)
	for i := range r {
		r[i] = heldRow()
		r[i].ID = int64(i + 1)
	}
	r[1].ClaimExpires.Int64 = 9 // lapsed
	r[2].Worker.String = "other"
	r[3].Attempts = 1

	tx := begin(t, db)
	writeRows(t, tx, r)
	ids, err := jobs.Jobs{}.AckAttemptIDs(ctx, tx, []int64{1, 2, 3, 4, 5}, "me", 2, 10)
	require.NoError(t, err)
	require.Equal(t, []int64{1}, ids)
	require.Equal(t, r[1:], liveRows(t, tx))
	require.NoError(t, tx.Rollback())

	tx = begin(t, db)
	writeRows(t, tx, r)
	n, err := jobs.Jobs{}.AckAttempt(ctx, tx, []int64{1, 2, 3, 4, 5}, "me", 2, 10)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Equal(t, r[1:], liveRows(t, tx))
	require.NoError(t, tx.Rollback())

	tx = begin(t, db)
	writeRows(t, tx, r)
	n, err = ackMany(tx, "a", []int64{1, 2, 3, 4, 5}, "me", 10)
	require.NoError(t, err)
	require.Equal(t, 2, n)
	require.Equal(t, r[1:3], liveRows(t, tx))
}

// Settling an empty list of jobs is not an error.
func TestSettle_None(t *testing.T) {
	tx := held(t, openFresh(t), heldRow())
	before := dump(t, tx)
	for _, none := range [][]int64{nil, {}} {
		ids, err := jobs.Jobs{}.AckAttemptIDs(ctx, tx, none, "me", 2, 10)
		require.NoError(t, err)
		require.Empty(t, ids)
		n, err := jobs.Jobs{}.AckAttempt(ctx, tx, none, "me", 2, 10)
		require.NoError(t, err)
		require.Zero(t, n)
		n, err = ackMany(tx, "a", none, "me", 10)
		require.NoError(t, err)
		require.Zero(t, n)
		ids, err = renew(tx, none, "me", 10, 60)
		require.NoError(t, err)
		require.Empty(t, ids)
	}
	require.Equal(t, before, dump(t, tx))
}

// A retried job waits until its time and keeps the attempt's error.
func TestSettle_Retry(t *testing.T) {
	tx := held(t, openFresh(t), heldRow())
	held, dead, err := jobs.Jobs{}.Retry(ctx, tx, mine, 50, "timeout", 10)
	require.NoError(t, err)
	require.True(t, held)
	require.False(t, dead)
	want := heldRow().released()
	want.RunAt = 50
	require.Equal(t, want, liveRow(t, tx, 1), "the attempt stays counted")
	job, found, err := jobs.Jobs{}.Find(ctx, tx, 1, "a")
	require.NoError(t, err)
	require.True(t, found)
	require.Equal(t, "timeout", job.LastError, "in place of the first one")
	require.Empty(t, deadRows(t, tx))
}

// A retry without an error creates no side row.
func TestSettle_Retry_NoError(t *testing.T) {
	tx := held(t, openFresh(t), heldRow())
	exec(t, tx, `DELETE FROM _honkerx_job`)
	_, _, err := jobs.Jobs{}.Retry(ctx, tx, mine, 50, "", 10)
	require.NoError(t, err)
	require.Empty(t, lines(t, tx, `SELECT job_id, last_error FROM _honkerx_job`))
}

// A retry after the last attempt dead-letters the job.
func TestSettle_Retry_LastAttempt(t *testing.T) {
	for _, attempts := range []int64{3, 4} { // another binding may have lowered max_attempts
		last := heldRow()
		last.Attempts = attempts
		tx := held(t, openFresh(t), last)
		held, dead, err := jobs.Jobs{}.Retry(ctx, tx, row.Claim{ID: 1, Worker: "me", Attempt: attempts}, 50, "timeout", 10)
		require.NoError(t, err)
		require.True(t, held)
		require.True(t, dead)
		require.Equal(t, map[int64]row.Job{1: last.dead("timeout", 10)}, deadRows(t, tx))
		require.Equal(t, []int64{2}, idsOf(liveRows(t, tx), rowID))
		require.Equal(t, []string{"2|other"}, lines(t, tx, `SELECT job_id, last_error FROM _honkerx_job`))
	}
}

func TestJobs_DeadLetter_KeepsTheJob(t *testing.T) {
	tx := held(t, openFresh(t), heldRow())
	_, err := jobs.Jobs{}.DeadLetter(ctx, tx, mine, "poison", 10)
	require.NoError(t, err)
	require.Equal(t, map[int64]row.Job{1: heldRow().dead("poison", 10)}, deadRows(t, tx))
	require.Equal(t, []int64{2}, idsOf(liveRows(t, tx), rowID))

	job, found, err := jobs.Jobs{}.Find(ctx, tx, 1, "a")
	require.NoError(t, err)
	require.True(t, found)
	require.Equal(t, heldRow().dead("poison", 10), job)
	_, found, err = jobs.Jobs{}.Find(ctx, tx, 1, "b")
	require.NoError(t, err)
	require.False(t, found, "another queue")
}

// PutBack doesn't use up an attempt.
func TestSettle_Release_Attempt(t *testing.T) {
	for runAt, want := range map[int64]int64{0: 5, 4: 5, 50: 50} { // never earlier than before
		tx := held(t, openFresh(t), heldRow())
		_, err := jobs.Jobs{}.PutBack(ctx, tx, mine, runAt, 10)
		require.NoError(t, err)
		r := heldRow().released()
		r.Attempts, r.RunAt = 1, want
		require.Equal(t, r, liveRow(t, tx, 1))
	}
}

// Extend sets the deadline relative to now and may shorten it.
func TestSettle_Extend(t *testing.T) {
	for _, expires := range []int64{12, 60} {
		tx := held(t, openFresh(t), heldRow())
		_, err := jobs.Jobs{}.ExtendUntil(ctx, tx, mine, expires, 10)
		require.NoError(t, err)
		want := heldRow()
		want.ClaimExpires.Int64 = expires
		require.Equal(t, want, liveRow(t, tx, 1))
	}
}

// Renew never shortens a lease.
func TestSettle_Renew(t *testing.T) {
	for expires, left := range map[int64]int64{12: lastValid, 60: 60} {
		tx := held(t, openFresh(t), heldRow())
		ids, err := renew(tx, []int64{1, 2}, "me", 10, expires)
		require.NoError(t, err)
		require.Equal(t, []int64{1}, ids)
		want := heldRow()
		want.ClaimExpires.Int64 = left
		require.Equal(t, want, liveRow(t, tx, 1))
		require.EqualValues(t, lastValid, liveRow(t, tx, 2).ClaimExpires.Int64)
	}
}

// The side row disappears with its job even if the job is deleted by another binding, which doesn't know about side
// rows.
func TestJobs_SideRowGoesWithItsJob(t *testing.T) {
	path := newPath(t)
	db := openBootstrapped(t, path)
	exec(t, db, `INSERT INTO _honker_live (id, queue, payload) VALUES (1, 'a', '1'), (2, 'a', '1'), (3, 'a', '1')`)
	exec(t, db, `INSERT INTO _honkerx_job (job_id, last_error) VALUES (1, 'x'), (2, 'y'), (3, 'z')`)
	exec(t, openPlain(t, path), `DELETE FROM _honker_live WHERE id = 2`)
	require.Equal(t, []string{"1|x", "3|z"}, lines(t, db, `SELECT job_id, last_error FROM _honkerx_job`))
	cancelled, err := jobs.Jobs{}.Cancel(ctx, db, "a", 1, time.Unix(0, 0))
	require.NoError(t, err)
	require.True(t, cancelled)
	require.Equal(t, []string{"3|z"}, lines(t, db, `SELECT job_id, last_error FROM _honkerx_job`))
	_, err = jobs.Jobs{}.SweepExpired(ctx, db, "a", 10)
	require.NoError(t, err)
	exec(t, db, `UPDATE _honker_live SET expires_at = 5`)
	swept, err := jobs.Jobs{}.SweepExpired(ctx, db, "a", 10)
	require.NoError(t, err)
	require.Len(t, swept, 1)
	require.Empty(t, lines(t, db, `SELECT job_id, last_error FROM _honkerx_job`))
}
