package dispatch_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/dispatch"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
)

// Maintain deletes jobs that ended more than an hour ago and expired actors. It drops the triggers when
// no job needs them, and the next Send creates them again.
func TestMaintain_Dispatch(t *testing.T) {
	testkit.FileOnly(t)
	db := honkertest.Open(t, nil)
	d := dispatch.New(db, &dispatch.Options{Legacy: dispatch.LegacyDualPush})
	ctx := context.Background()
	over := send(t, d, typeOsis, 1, dispatch.ReplyTo("replies"))
	waits := send(t, d, dispatch.Target{Type: "none"}, 2)
	_, err := d.StopJob(ctx, over)
	require.NoError(t, err)
	testkit.Exec(t, db, `INSERT INTO _honkerx_dispatch_presence VALUES ('hero:meta:actor:inst:osis:default:1', 'gone', '{}', 1)`)
	rows := func(table string) int64 {
		return testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honkerx_dispatch_`+table)
	}
	testkit.Background(t, func(ctx context.Context) error {
		return db.Maintain(ctx, &honker.MaintainOptions{Every: time.Millisecond})
	})
	testkit.Eventually(t, testkit.Timeout, "gone", func() bool { return rows("presence") == 0 })
	require.EqualValues(t, 2, rows("jobs"), "an hour has not passed")
	require.EqualValues(t, 8, triggers(t, db))

	testkit.Exec(t, db, `UPDATE _honkerx_dispatch_jobs SET ended_ms = 1 WHERE job_id = ?`, over)
	testkit.Eventually(t, testkit.Timeout, "forgotten, and with it what replies need", func() bool { return triggers(t, db) == 5 })
	require.EqualValues(t, 1, rows("twins"), "that of the other")
	_, err = d.Status(ctx, over)
	require.ErrorIs(t, err, honker.ErrNotFound)
	waitState(t, d, waits, dispatch.Dispatched)

	_, err = d.StopJob(ctx, waits)
	require.NoError(t, err)
	testkit.Exec(t, db, `UPDATE _honkerx_dispatch_jobs SET ended_ms = 1`)
	testkit.Eventually(t, testkit.Timeout, "no trigger", func() bool { return triggers(t, db) == 0 })
	require.Zero(t, rows("twins"))
	send(t, d, typeOsis, 1)
	require.EqualValues(t, 5, triggers(t, db))
	require.NoError(t, db.Check(ctx))
}

// Check reports each violated rule of the dispatch tables once.
func TestCheck_Dispatch(t *testing.T) {
	testkit.FileOnly(t)
	db := honkertest.Open(t, nil)
	d := dispatch.New(db, &dispatch.Options{Legacy: dispatch.LegacyDualPush})
	ctx := context.Background()
	send(t, d, typeOsis, 1)
	require.NoError(t, db.Check(ctx))
	for broken, statement := range map[string]string{
		"runs as itself, or as one of its copies":     `UPDATE _honkerx_dispatch_jobs SET run_id = 99`,
		"a copy belongs to a sent job":                `INSERT INTO _honkerx_dispatch_twins VALUES (99, 98)`,
		"a claimed job has no other copies":           `UPDATE _honker_live SET state = 'processing', worker_id = 'w', claim_expires_at = 9, attempts = 1`,
		"a job that waits or runs has not ended":      `UPDATE _honkerx_dispatch_jobs SET ended_ms = 1`,
		"a job that neither waits nor runs":           `INSERT INTO _honkerx_dispatch_jobs (job_id, run_id, queue, sent_ms) VALUES (99, 99, 'q', 1)`,
		"a job that was stopped neither waits nor":    `UPDATE _honkerx_dispatch_jobs SET stop_ms = 1`,
		"an actor has a name, an owner and an expiry": `INSERT INTO _honkerx_dispatch_presence VALUES ('', 'o', '{}', 1)`,
		"_honkerx_dispatch_taken":                     `DROP TRIGGER _honkerx_dispatch_taken`,
	} {
		path := t.TempDir() + "/copy.db"
		_, err := db.SQL().Exec(`VACUUM INTO ?`, path)
		require.NoError(t, err)
		other, err := honker.Open(ctx, path, nil) // not opened with honkertest, which would also check the file
		require.NoError(t, err)
		if broken == "a claimed job has no other copies" { // simulate a program that has disabled triggers
			testkit.Exec(t, other, `DROP TRIGGER _honkerx_dispatch_taken`)
		}
		testkit.Exec(t, other, statement)
		require.ErrorContains(t, other.Check(ctx), broken)
		require.NoError(t, other.Close())
	}
}
