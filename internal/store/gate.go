package store

import "context"

// The triggers that bind the claims of every binding to pauses and limits. They are of built-in SQL,
// and each costs every claim something, so they exist only while a row of _honkerx_queues needs
// them; they change in the transaction of that row.
//
// RAISE(IGNORE) in a BEFORE trigger drops the change of one row, and the statement goes on with the
// others: a claim passes over that row. A heartbeat does not set state, so it meets none of them.

// clockOfSQLite is SQLite's time in milliseconds. julianday, since unixepoch('subsec') is of SQLite 3.42.
const clockOfSQLite = `CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)`

// clock is the time in milliseconds: of the claim, where it is one of ours, or SQLite's.
const clock = `coalesce((SELECT claim_ms FROM _honkerx_queues WHERE queue = NEW.queue),
  ` + clockOfSQLite + `)`

// Rates are GCRA. A start moves tat, the time until which starts are spent, by an interval; with a
// burst of one, the next may come at tat, with one of n n-1 intervals before. A tat that no start can
// have made is of a clock that went back, and counts as over.
const (
	interval    = `(1.0 * q.rate_per_ms / q.rate_n)`
	keyInterval = `(1.0 * q.key_rate_per_ms / q.key_rate_n)`

	overRate = `q.rate_tat_ms > ` + clock + ` + ` + interval + ` * (q.rate_burst - 1) + 0.5
    AND q.rate_tat_ms <= ` + clock + ` + ` + interval + ` * q.rate_burst + 1000`

	// Of a key: until when its starts are spent or reserved, and when a start may come.
	keySpent     = `max(ifnull(k.tat_ms, 0), ifnull(k.next_ms, 0))`
	keyAllowance = keyInterval + ` * (q.key_rate_burst - 1)`
)

// running is how many jobs of the queue q run at nowMS, those included that were cancelled and may still.
func running(nowMS string) string {
	return `((SELECT count(*) FROM _honker_live INDEXED BY _honker_live_processing_deadline
    WHERE queue = q.queue AND state = 'processing') + ` + cancelled("q.queue", "", nowMS) + `)`
}

// The gate of a queue. A claim of a job with a claim that has lapsed takes no place of another one.
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

// keyed is the condition that the job has a key for which the condition is true. s is the job's side
// row, q its queue's, and k its key's.
func keyed(condition string) string {
	return `EXISTS (SELECT 1 FROM _honkerx_job AS s CROSS JOIN _honkerx_queues AS q ON q.queue = s.queue
  LEFT JOIN _honkerx_keys AS k ON k.queue = s.queue AND k.key = s.key
  WHERE s.job_id = NEW.id AND s.key IS NOT NULL AND ` + condition + `)`
}

const ofKey = `SELECT 1 FROM _honkerx_job INDEXED BY _honkerx_job_key WHERE queue = s.queue AND key = s.key`

// What a claim does with a job of which the key has no room is one of three, in this order: it holds
// the job, or gives it a later time.
var (
	// In order: only the first of the live jobs of the key. Those that are held have neither priority
	// nor time there, so both kinds of earlier ones are a seek. While jobs are fitted to that order, a
	// key with one that was held by the limits before, with its priority and time, is closed.
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

	// A job that has a start reserved comes at a whole second, with all those of that second: it is held
	// against the starts there were, and may be a second early. It may be late too, with many others,
	// where no worker was there or the key was full or paused: then it gets another time.
	keyOverRate = `ifnull(iif(ifnull(s.wait, 0) & 1, k.tat_ms - 1000, ` + keySpent + `) - ` + keyAllowance + ` > ` + clock + ` + 0.5, 0)`

	whenClaimed = ` BEFORE UPDATE OF state ON _honker_live
WHEN NEW.state = 'processing' AND OLD.state = 'pending' AND `
)

// letGoSlots is the SET of jobs that are held for their keys, and are let go.
const letGoSlots = `UPDATE _honkerx_job SET slot = 0, priority = NULL, run_at = NULL`

// nextOfKey lets the next job go that is held for the key of row, a row of _honkerx_job. It never does
// harm: a claim holds it again where the key is still full.
func nextOfKey(row string) string {
	return letGoSlots + ` WHERE job_id = (
    SELECT job_id FROM _honkerx_job INDEXED BY _honkerx_job_key
    WHERE queue = ` + row + `.queue AND key = ` + row + `.key AND slot = 2
    ORDER BY priority DESC, run_at, job_id LIMIT 1);`
}

// nextOfKeyOf is nextOfKey for the key of a job, an SQL expression.
func nextOfKeyOf(job string) string {
	return letGoSlots + ` WHERE job_id = (
    SELECT h.job_id FROM _honkerx_job AS s CROSS JOIN _honkerx_job AS h INDEXED BY _honkerx_job_key
    ON h.queue = s.queue AND h.key = s.key AND h.slot = 2 WHERE s.job_id = ` + job + `
    ORDER BY h.priority DESC, h.run_at, h.job_id LIMIT 1);`
}

// notInOrder is the condition that the jobs of a key need not run in order in the queue of row.
func notInOrder(row string) string {
	return `NOT EXISTS (SELECT 1 FROM _honkerx_queues WHERE queue = ` + row + `.queue AND in_order = 1)`
}

type trigger struct{ name, body string }

var slotTrigger = trigger{"_honkerx_key_slot", ` AFTER UPDATE OF slot ON _honkerx_job
WHEN NEW.slot = 2 AND OLD.slot <> 2 OR NEW.slot = 0 AND OLD.slot = 2
BEGIN
  UPDATE _honker_live SET state = 'held' WHERE NEW.slot = 2 AND id = NEW.job_id AND state = 'pending';
  ` + unhold("iif(NEW.slot = 0, NEW.job_id, NULL)") + `
END`}

// keyTriggers keep the slots of jobs with keys true, and let as many jobs of a key be claimed as it
// has room for. Whatever leaves and was not held lets the next one go: one that has run, and also
// one that was let go and has not run, or has got a later time.
//
// The slot leads, and the state follows by _honkerx_key_slot. No trigger relies on being fired by
// itself, which is a setting of the connection.
var keyTriggers = []trigger{
	{"_honkerx_key_gate", whenClaimed + keyed(keyFull) + `
BEGIN
  UPDATE _honkerx_job SET slot = 2,
    priority = iif(` + notInOrder("NEW") + `, OLD.priority, 0), run_at = iif(` + notInOrder("NEW") + `, OLD.run_at, 0)
  WHERE job_id = OLD.id;
  SELECT RAISE(IGNORE);
END`},
	{"_honkerx_key_pause", whenClaimed + keyed(keyPaused+` AND NOT `+keyFull) + `
BEGIN
  UPDATE _honkerx_job SET wait = ifnull(wait, 0) | 2 WHERE job_id = OLD.id;
  UPDATE _honker_live SET run_at = (SELECT k.until_ms / 1000 FROM _honkerx_job AS s
    JOIN _honkerx_keys AS k ON k.queue = s.queue AND k.key = s.key WHERE s.job_id = OLD.id) WHERE id = OLD.id;
  SELECT RAISE(IGNORE);
END`},
	// A start is reserved for the job, behind those that are reserved already.
	{"_honkerx_key_rate", whenClaimed + keyed(keyOverRate+` AND NOT `+keyPaused+` AND NOT `+keyFull) + `
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
END`},
	{"_honkerx_key_runs", ` AFTER UPDATE OF state ON _honker_live
WHEN NEW.state = 'processing' AND EXISTS (SELECT 1 FROM _honkerx_job WHERE job_id = NEW.id AND key IS NOT NULL)
BEGIN
  INSERT INTO _honkerx_keys (queue, key, tat_ms)
  SELECT s.queue, s.key, ` + clock + ` + ` + keyInterval + ` FROM _honkerx_job AS s JOIN _honkerx_queues AS q ON q.queue = s.queue
  WHERE s.job_id = NEW.id AND q.key_rate_n IS NOT NULL
  ON CONFLICT (queue, key) DO UPDATE SET tat_ms = excluded.tat_ms + max(0, ifnull(tat_ms, 0) - ` + clock + `);
  UPDATE _honkerx_job SET slot = 1, wait = NULL WHERE job_id = NEW.id;
END`},
	{"_honkerx_key_back", ` AFTER UPDATE OF state ON _honker_live
WHEN OLD.state = 'processing' AND NEW.state <> 'processing'
BEGIN
  UPDATE _honkerx_job SET slot = 0 WHERE job_id = NEW.id AND slot = 1;
END`},
	slotTrigger,
	// In order too: where the order came while several ran, this one may not be the first.
	{"_honkerx_key_left", ` AFTER UPDATE OF slot ON _honkerx_job
WHEN OLD.slot = 1 AND NEW.slot = 0
BEGIN
  ` + nextOfKey("NEW") + `
END`},
	{"_honkerx_key_gone", ` AFTER DELETE ON _honkerx_job
WHEN OLD.key IS NOT NULL AND OLD.slot <> 2
BEGIN
  ` + nextOfKey("OLD") + `
END`},
	{"_honkerx_key_freed", ` AFTER DELETE ON _honkerx_cancelled
WHEN OLD.key IS NOT NULL
BEGIN
  ` + nextOfKey("OLD") + `
END`},
	{"_honkerx_key_later", ` AFTER UPDATE OF run_at ON _honker_live
WHEN NEW.run_at > OLD.run_at AND OLD.state = 'pending' AND NEW.state = 'pending' AND ` + notInOrder("NEW") + `
BEGIN
  ` + nextOfKeyOf("NEW.id") + `
END`},
	// One that is held and changed takes its place anew.
	{"_honkerx_key_moved", ` AFTER UPDATE OF run_at, priority ON _honker_live
WHEN OLD.state = 'held' AND NEW.state = 'held'
BEGIN
  ` + letGoSlots + ` WHERE job_id = NEW.id AND slot = 2;
END`},
}

// Whole tables: of rows that are few, or when triggers come and go.
var (
	anyGated = `EXISTS (SELECT 1 FROM _honkerx_queues WHERE coalesce(paused_ms, running, rate_n) IS NOT NULL)`
	anyRated = `EXISTS (SELECT 1 FROM _honkerx_queues WHERE rate_n IS NOT NULL)`
	anyKeyed = `EXISTS (SELECT 1 FROM _honkerx_queues WHERE coalesce(per_key, in_order, key_rate_n, keys_paused, fit_job) IS NOT NULL)`

	sqlNeeds = `SELECT ` + anyGated + `, ` + anyRated + `, ` + anyKeyed + `,
  ` + hasTrigger("_honkerx_gate") + `, ` + hasTrigger("_honkerx_rate") + `, ` + hasTrigger("_honkerx_key_gate")
)

// By the index of deadlines: those with a slot 1 are the jobs that run.
const (
	ofRunning         = ` WHERE key IS NOT NULL AND job_id IN (SELECT id FROM _honker_live INDEXED BY _honker_live_processing_deadline WHERE state = 'processing')`
	sqlSlotsOfRunning = `UPDATE _honkerx_job SET slot = 1` + ofRunning
	sqlNoneRuns       = `UPDATE _honkerx_job SET slot = 0` + ofRunning
)

// Where processes of several versions have a file open, some of the triggers may be there already, or no more.
const (
	dropGate    = `DROP TRIGGER IF EXISTS _honkerx_gate`
	dropRate    = `DROP TRIGGER IF EXISTS _honkerx_rate`
	createKeyed = `CREATE TRIGGER IF NOT EXISTS `
	dropKeyed   = `DROP TRIGGER IF EXISTS `
)

// hasTrigger is the condition that the file has a trigger.
func hasTrigger(name string) string {
	return `EXISTS (SELECT 1 FROM sqlite_schema WHERE type = 'trigger' AND name = '` + name + `')`
}

// fitTriggers makes the triggers that the rows need now, and drops those that none does. It is for
// the transaction in which the rows have changed.
func fitTriggers(ctx context.Context, q Querier) error {
	var gated, rated, keyed, gate, rate, key bool
	if _, err := one(ctx, q, sqlNeeds, nil, &gated, &rated, &keyed, &gate, &rate, &key); err != nil {
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
	return execAll(ctx, q, run)
}

// createKeyTriggers begins with the jobs that run: without the triggers nothing notes them.
func createKeyTriggers() []string {
	run := []string{sqlSlotsOfRunning}
	for _, t := range keyTriggers {
		run = append(run, createKeyed+t.name+t.body)
	}
	return run
}

// renewSlotTrigger makes the trigger by which the state follows the slot anew, if there is one.
func renewSlotTrigger(ctx context.Context, q Querier) error {
	var x int
	found, err := one(ctx, q, sqlHasTrigger, []any{slotTrigger.name}, &x)
	if err != nil || !found {
		return err
	}
	return execAll(ctx, q, []string{dropKeyed + slotTrigger.name, createKeyed + slotTrigger.name + slotTrigger.body})
}

// dropKeyTriggers ends with no slot 1. No job is held for its key by then, see FitSome.
func dropKeyTriggers() []string {
	var run []string
	for _, t := range keyTriggers {
		run = append(run, dropKeyed+t.name)
	}
	return append(run, sqlNoneRuns)
}
