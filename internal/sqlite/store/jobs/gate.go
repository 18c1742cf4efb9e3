package jobs

import (
	"context"
	_ "embed"
	"slices"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/rows"
)

// These triggers enforce pauses and limits on every binding's claims. They use only built-in SQL. Each of them
// adds to the cost of every claim, so a trigger exists only while a row in _honkerx_queues needs it. Triggers
// are created and dropped in the transaction that changes the row.
//
// RAISE(IGNORE) in a BEFORE trigger skips the change of a single row, and the statement continues with the
// other rows. A claim thus passes over the job. A heartbeat does not set state, so it fires none of the
// triggers.

// clockOfSQLite is SQLite's time in unix milliseconds. It uses julianday because unixepoch('subsec')
// requires SQLite 3.42.
const clockOfSQLite = `CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)`

// clock is the current time in Unix milliseconds: the claim's own time if this package makes the claim, and
// SQLite's time otherwise.
const clock = `coalesce((SELECT claim_ms FROM _honkerx_queues WHERE queue = NEW.queue),
  ` + clockOfSQLite + `)`

// Rates use GCRA (generic cell rate algorithm). Each start advances tat, the theoretical arrival time, by an
// interval. With a burst of n, the next start is allowed n-1 intervals before tat. If tat is too far in the
// future, it was stored before the clock went back, and is treated as past.
const (
	interval    = `(1.0 * q.rate_per_ms / q.rate_n)`
	keyInterval = `(1.0 * q.key_rate_per_ms / q.key_rate_n)`

	overRate = `q.rate_tat_ms > ` + clock + ` + ` + interval + ` * (q.rate_burst - 1) + 0.5
    AND q.rate_tat_ms <= ` + clock + ` + ` + interval + ` * q.rate_burst + 1000`

	// These expressions are for a key: the time until which its starts are used up or reserved, and how long
	// before that time a start is allowed.
	keySpent     = `max(ifnull(k.tat_ms, 0), ifnull(k.next_ms, 0))`
	keyAllowance = keyInterval + ` * (q.key_rate_burst - 1)`
)

// running returns the query for the number of jobs in the queue q that run at nowMS, including cancelled jobs
// that may still run.
func running(nowMS string) string {
	return `((SELECT count(*) FROM _honker_live INDEXED BY _honker_live_processing_deadline
    WHERE queue = q.queue AND state = 'processing') + ` + cancelled("q.queue", "", nowMS) + `)`
}

// A queue's gate. Claiming a job whose claim has lapsed does not need a new slot.
var (
	makeGate = `CREATE TRIGGER IF NOT EXISTS _honkerx_gate BEFORE UPDATE OF state ON _honker_live
WHEN NEW.state = 'processing' AND EXISTS (SELECT 1 FROM _honkerx_queues AS q WHERE q.queue = NEW.queue AND (
  q.paused_ms IS NOT NULL AND (q.until_ms IS NULL OR q.until_ms > ` + clock + `)
  OR OLD.state <> 'processing' AND q.running <= ` + running(clock) + `
  OR ` + overRate + `))
BEGIN
  SELECT RAISE(IGNORE);
END`

	makeRate = `CREATE TRIGGER IF NOT EXISTS _honkerx_rate AFTER UPDATE OF state ON _honker_live
WHEN NEW.state = 'processing' AND EXISTS (SELECT 1 FROM _honkerx_queues WHERE queue = NEW.queue AND rate_n IS NOT NULL)
BEGIN
  UPDATE _honkerx_queues SET rate_tat_ms = (SELECT ` + interval + ` + iif(
    q.rate_tat_ms BETWEEN ` + clock + ` AND ` + clock + ` + ` + interval + ` * q.rate_burst + 1000, q.rate_tat_ms, ` + clock + `)
    FROM _honkerx_queues AS q WHERE q.queue = NEW.queue)
  WHERE queue = NEW.queue;
END`
)

// keyed returns the condition that the job has a key and that condition is true for it. In condition, s is the
// job's side row, q is its queue's row, and k is its key's row.
func keyed(condition string) string {
	return `EXISTS (SELECT 1 FROM _honkerx_job AS s CROSS JOIN _honkerx_queues AS q ON q.queue = s.queue
  LEFT JOIN _honkerx_keys AS k ON k.queue = s.queue AND k.key = s.key
  WHERE s.job_id = NEW.id AND s.key IS NOT NULL AND ` + condition + `)`
}

const ofKey = `SELECT 1 FROM _honkerx_job INDEXED BY _honkerx_job_key WHERE queue = s.queue AND key = s.key`

// A claim that reaches a job whose key has no room does the first of these that applies: it holds the job
// because the key is full, delays it to the end of the key's pause, or delays it to a start allowed by the
// key's rate.
var (
	// With in_order only the first of the key's live jobs may run. Held jobs then have priority 0 and time 0,
	// and jobs with slot 0 have neither, so the search for an earlier job costs a seek for each kind. While
	// jobs are being fitted to that order, a key stays full as long as it has a job that was held under the
	// old limits, with its own priority and time.
	keyFull = `ifnull(q.per_key <= (SELECT count(*) FROM _honkerx_job INDEXED BY _honkerx_job_key
    WHERE queue = s.queue AND key = s.key AND slot = 1) + ` + cancelledOfKey + `
  OR q.in_order = 1 AND (EXISTS (` + ofKey + ` AND slot = 1)
    OR EXISTS (` + ofKey + ` AND slot = 0 AND priority IS NULL AND run_at IS NULL AND job_id < s.job_id)
    OR EXISTS (` + ofKey + ` AND slot = 2 AND priority = 0 AND run_at = 0 AND job_id < s.job_id)
    OR ` + cancelledOfKey + ` > 0
    OR q.fit_job IS NOT NULL AND (EXISTS (` + ofKey + ` AND slot = 2 AND priority > 0) OR EXISTS (` + ofKey + ` AND slot = 2 AND priority < 0)
      OR EXISTS (` + ofKey + ` AND slot = 2 AND priority = 0 AND run_at > 0) OR EXISTS (` + ofKey + ` AND slot = 2 AND priority = 0 AND run_at < 0)))
  OR k.paused_ms IS NOT NULL AND k.until_ms IS NULL, 0)`

	cancelledOfKey = cancelled("s.queue", "s.key", clock)

	keyPaused = `ifnull(k.until_ms > ` + clock + `, 0)`

	// A job with a reserved start becomes due at a whole second, together with the other starts in that
	// second. It is therefore checked only against starts that were made, and may start up to a second early.
	// If it is claimed late, because no worker was available or the key was full or paused, many other jobs
	// may be late too. It is then assigned a new start.
	keyOverRate = `ifnull(iif(ifnull(s.wait, 0) & 1, k.tat_ms - 1000, ` + keySpent + `) - ` + keyAllowance + ` > ` + clock + ` + 0.5, 0)`

	whenClaimed = ` BEFORE UPDATE OF state ON _honker_live
WHEN NEW.state = 'processing' AND OLD.state = 'pending' AND `
)

// letGoSlots is the beginning of the UPDATE that releases jobs held for their keys.
const letGoSlots = `UPDATE _honkerx_job SET slot = 0, priority = NULL, run_at = NULL`

// sqlNextOfKeyOf releases the next job that is held for the same key as the job ?1. Releasing a job is always
// safe: a claim holds it again if the key is still full. It uses the primary key and _honkerx_job_key.
const sqlNextOfKeyOf = letGoSlots + ` WHERE job_id = (
    SELECT h.job_id FROM _honkerx_job AS s CROSS JOIN _honkerx_job AS h INDEXED BY _honkerx_job_key
    ON h.queue = s.queue AND h.key = s.key AND h.slot = 2 WHERE s.job_id = ?1
    ORDER BY h.priority DESC, h.run_at, h.job_id LIMIT 1);`

// notInOrder is the condition that the job's queue does not run a key's jobs in order.
const notInOrder = `NOT EXISTS (SELECT 1 FROM _honkerx_queues WHERE queue = NEW.queue AND in_order = 1)`

// keyTriggers maintain the slots of jobs with keys, and let claims take as many of a key's jobs as it has room
// for. Each job that leaves without being held releases its key's next job. This includes jobs that were
// released and then deleted or delayed without having run.
//
// A change to a slot changes the state, through _honkerx_key_slot, never the reverse. No trigger relies on
// recursive triggers, which are a connection setting.
//
// The triggers that depend on a claim's conditions are composed here; the others are in key.sql.
var keyTriggers = triggersOf(append([]string{
	createKeyed + `_honkerx_key_gate` + whenClaimed + keyed(keyFull) + `
BEGIN
  UPDATE _honkerx_job SET slot = 2,
    priority = iif(` + notInOrder + `, OLD.priority, 0), run_at = iif(` + notInOrder + `, OLD.run_at, 0)
  WHERE job_id = OLD.id;
  SELECT RAISE(IGNORE);
END`,
	createKeyed + `_honkerx_key_pause` + whenClaimed + keyed(keyPaused+` AND NOT `+keyFull) + `
BEGIN
  UPDATE _honkerx_job SET wait = ifnull(wait, 0) | 2 WHERE job_id = OLD.id;
  UPDATE _honker_live SET run_at = (SELECT k.until_ms / 1000 FROM _honkerx_job AS s
    JOIN _honkerx_keys AS k ON k.queue = s.queue AND k.key = s.key WHERE s.job_id = OLD.id) WHERE id = OLD.id;
  SELECT RAISE(IGNORE);
END`,
	// The job is assigned the first start after those already reserved.
	createKeyed + `_honkerx_key_rate` + whenClaimed + keyed(keyOverRate+` AND NOT `+keyPaused+` AND NOT `+keyFull) + `
BEGIN
  UPDATE _honkerx_job SET wait = ifnull(wait, 0) | 1 WHERE job_id = OLD.id;
  UPDATE _honkerx_keys SET next_ms = max(ifnull(tat_ms, 0), ifnull(next_ms, 0))
  WHERE (queue, key) = (SELECT queue, key FROM _honkerx_job WHERE job_id = OLD.id);
  UPDATE _honker_live SET run_at = (SELECT CAST((k.next_ms - ` + keyAllowance + ` + 999.999) / 1000 AS INTEGER)
    FROM _honkerx_job AS s JOIN _honkerx_queues AS q ON q.queue = s.queue
    JOIN _honkerx_keys AS k ON k.queue = s.queue AND k.key = s.key WHERE s.job_id = OLD.id) WHERE id = OLD.id;
  UPDATE _honkerx_keys SET next_ms = next_ms + (SELECT ` + keyInterval + ` FROM _honkerx_queues AS q WHERE q.queue = NEW.queue)
  WHERE (queue, key) = (SELECT queue, key FROM _honkerx_job WHERE job_id = OLD.id);
  SELECT RAISE(IGNORE);
END`,
	createKeyed + `_honkerx_key_runs AFTER UPDATE OF state ON _honker_live
WHEN NEW.state = 'processing' AND EXISTS (SELECT 1 FROM _honkerx_job WHERE job_id = NEW.id AND key IS NOT NULL)
BEGIN
  INSERT INTO _honkerx_keys (queue, key, tat_ms)
  SELECT s.queue, s.key, ` + clock + ` + ` + keyInterval + ` FROM _honkerx_job AS s JOIN _honkerx_queues AS q ON q.queue = s.queue
  WHERE s.job_id = NEW.id AND q.key_rate_n IS NOT NULL
  ON CONFLICT (queue, key) DO UPDATE SET tat_ms = excluded.tat_ms + max(0, ifnull(tat_ms, 0) - ` + clock + `);
  UPDATE _honkerx_job SET slot = 1, wait = NULL WHERE job_id = NEW.id;
END`,
}, rows.SplitDDL(keyDDL)...))

//go:embed key.sql
var keyDDL string

// These conditions scan whole tables. The tables have few rows or are scanned only when triggers change.
var (
	AnyGated = `EXISTS (SELECT 1 FROM _honkerx_queues WHERE coalesce(paused_ms, running, rate_n) IS NOT NULL)`
	AnyRated = `EXISTS (SELECT 1 FROM _honkerx_queues WHERE rate_n IS NOT NULL)`
	AnyKeyed = `EXISTS (SELECT 1 FROM _honkerx_queues WHERE coalesce(per_key, in_order, key_rate_n, keys_paused, fit_job) IS NOT NULL)`

	sqlNeeds = `SELECT ` + AnyGated + `, ` + AnyRated + `, ` + AnyKeyed + `,
  ` + rows.HasTrigger("_honkerx_gate") + `, ` + rows.HasTrigger("_honkerx_rate") + `, ` + rows.HasTrigger("_honkerx_key_gate")
)

// These statements use the index of claim deadlines. The jobs with slot 1 are the running jobs.
const (
	ofRunning         = ` WHERE key IS NOT NULL AND job_id IN (SELECT id FROM _honker_live INDEXED BY _honker_live_processing_deadline WHERE state = 'processing')`
	sqlSlotsOfRunning = `UPDATE _honkerx_job SET slot = 1` + ofRunning
	sqlNoneRuns       = `UPDATE _honkerx_job SET slot = 0` + ofRunning
)

// IF EXISTS and IF NOT EXISTS are needed because processes with different versions may have the file open, so
// some of the triggers may already have been created or dropped.
const (
	dropGate    = `DROP TRIGGER IF EXISTS _honkerx_gate`
	dropRate    = `DROP TRIGGER IF EXISTS _honkerx_rate`
	createKeyed = `CREATE TRIGGER IF NOT EXISTS `
	dropKeyed   = `DROP TRIGGER IF EXISTS `
)

// fitTriggers creates the triggers that the rows now need and drops those that no row needs. It must run in
// the transaction that changed the rows.
func fitTriggers(ctx context.Context, q row.Querier) error {
	var gated, rated, keyed, gate, rate, key bool
	if _, err := rows.One(ctx, q, sqlNeeds, nil, &gated, &rated, &keyed, &gate, &rate, &key); err != nil {
		return err
	}
	var run []string
	add := func(needed, there bool, create, drop []string) {
		switch {
		case needed && !there:
			run = append(run, create...)
		case there && !needed:
			run = append(run, drop...)
		}
	}
	add(gated, gate, []string{makeGate}, []string{dropGate})
	add(rated, rate, []string{makeRate}, []string{dropRate})
	add(keyed, key, createKeyTriggers(), dropKeyTriggers())
	return rows.ExecAll(ctx, q, run)
}

// createKeyTriggers returns the statements that create the key triggers. They first set the slots of running
// jobs, because slots are not maintained while the triggers do not exist.
func createKeyTriggers() []string {
	run := []string{sqlSlotsOfRunning}
	for _, t := range keyTriggers {
		run = append(run, t.create)
	}
	return run
}

// renewSlotTrigger recreates the trigger on slots if it exists.
func renewSlotTrigger(ctx context.Context, q row.Querier) error {
	const name = "_honkerx_key_slot"
	found, err := triggerExists(ctx, q, name)
	if err != nil || !found {
		return err
	}
	i := slices.IndexFunc(keyTriggers, func(t trigger) bool { return t.name == name })
	return rows.ExecAll(ctx, q, []string{dropKeyed + name, keyTriggers[i].create})
}

// dropKeyTriggers returns the statements that drop the key triggers and then reset the slots of running jobs.
// No job is held for its key at this point; see FitSome.
func dropKeyTriggers() []string {
	var run []string
	for _, t := range keyTriggers {
		run = append(run, dropKeyed+t.name)
	}
	return append(run, sqlNoneRuns)
}

// replaced returns the statements that drop outdated objects: two indexes, version 5's gate, which knew only
// pauses, and version 6's triggers, which did not know about cancelled jobs. fitTriggers recreates the
// triggers that the file needs.
func replaced() []string {
	return append([]string{
		`DROP INDEX IF EXISTS _honkerx_job_runs`,
		`DROP INDEX IF EXISTS _honkerx_job_held`,
		`DROP TRIGGER IF EXISTS _honkerx_gate`,
	}, dropKeyTriggers()...)
}

// RenewTriggers upgrades an older file's triggers to this version.
func RenewTriggers(ctx context.Context, q row.Querier) error {
	if err := renewKeyTriggers(ctx, q); err != nil {
		return err
	}
	if err := rows.ExecAll(ctx, q, replaced()); err != nil {
		return err
	}
	return fitTriggers(ctx, q)
}
