-- The file format. The nine _honker_ tables are honker's, column for column, and
-- shared with its bindings in other languages; docs/file-format.md says which
-- of honker's rules they follow. Everything that begins with _honkerx_ is our own
-- and additive: a binding that does not know it works on.
--
-- Every statement may run again on a file that has it already.
-- Times in honker's columns are unix seconds; in ours milliseconds, named _ms.

-- Messages of Notify. Ids are never reused: listeners go on after the last they saw.
CREATE TABLE IF NOT EXISTS _honker_notifications (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  channel TEXT NOT NULL,
  payload TEXT NOT NULL,
  created_at INTEGER NOT NULL DEFAULT (unixepoch())
);
CREATE INDEX IF NOT EXISTS _honker_notifications_recent
  ON _honker_notifications(channel, id);

-- Jobs that wait ('pending') and jobs that a worker holds ('processing').
-- A claim is valid while claim_expires_at >= now.
CREATE TABLE IF NOT EXISTS _honker_live (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  queue TEXT NOT NULL,
  payload TEXT NOT NULL,
  state TEXT NOT NULL DEFAULT 'pending',
  priority INTEGER NOT NULL DEFAULT 0,
  run_at INTEGER NOT NULL DEFAULT (unixepoch()),
  worker_id TEXT,
  claim_expires_at INTEGER,
  attempts INTEGER NOT NULL DEFAULT 0,
  max_attempts INTEGER NOT NULL DEFAULT 3,
  created_at INTEGER NOT NULL DEFAULT (unixepoch()),
  expires_at INTEGER
);
-- honker has two more indexes on this table, _honker_live_claim and
-- _honker_live_pending_deadline. Each would cost every job twice and serve none of
-- our statements; a binding that wants them creates them, and they are kept.
CREATE INDEX IF NOT EXISTS _honker_live_processing_deadline
  ON _honker_live(queue, claim_expires_at)
  WHERE state = 'processing';
-- The order of claims, without the jobs that are in flight.
CREATE INDEX IF NOT EXISTS _honkerx_live_pending
  ON _honker_live(queue, priority DESC, run_at, id)
  WHERE state = 'pending';
-- Jobs that wait but have no attempt left, which only another binding can leave
-- behind. Nearly always empty.
CREATE INDEX IF NOT EXISTS _honkerx_live_exhausted
  ON _honker_live(queue, run_at)
  WHERE state = 'pending' AND attempts >= max_attempts;
-- Two more for counting, which cost only the jobs in them: those with a time by which they
-- have to start, and those that wait for another one.
CREATE INDEX IF NOT EXISTS _honkerx_live_deadline
  ON _honker_live(queue, expires_at)
  WHERE state = 'pending' AND expires_at IS NOT NULL;
CREATE INDEX IF NOT EXISTS _honkerx_live_held
  ON _honker_live(queue, id)
  WHERE state = 'held';

-- Jobs that will not run again. id is the live one's.
CREATE TABLE IF NOT EXISTS _honker_dead (
  id INTEGER PRIMARY KEY,
  queue TEXT NOT NULL,
  payload TEXT NOT NULL,
  priority INTEGER NOT NULL DEFAULT 0,
  run_at INTEGER NOT NULL DEFAULT 0,
  attempts INTEGER NOT NULL DEFAULT 0,
  max_attempts INTEGER NOT NULL DEFAULT 0,
  last_error TEXT,
  created_at INTEGER NOT NULL DEFAULT (unixepoch()),
  died_at INTEGER NOT NULL DEFAULT (unixepoch())
);
-- The dead letters of a queue in the order in which they died.
CREATE INDEX IF NOT EXISTS _honkerx_dead_queue
  ON _honker_dead(queue, died_at, id);

-- Named locks with a lifetime.
CREATE TABLE IF NOT EXISTS _honker_locks (
  name TEXT PRIMARY KEY,
  owner TEXT NOT NULL,
  expires_at INTEGER NOT NULL
);

-- Fixed windows of rate limits.
CREATE TABLE IF NOT EXISTS _honker_rate_limits (
  name TEXT NOT NULL,
  window_start INTEGER NOT NULL,
  count INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (name, window_start)
);

-- Schedules and the moment each fires next. enabled and max_attempts came later:
-- Bootstrap adds them to older files.
CREATE TABLE IF NOT EXISTS _honker_scheduler_tasks (
  name TEXT PRIMARY KEY,
  queue TEXT NOT NULL,
  cron_expr TEXT NOT NULL,
  payload TEXT NOT NULL,
  priority INTEGER NOT NULL DEFAULT 0,
  expires_s INTEGER,
  next_fire_at INTEGER NOT NULL,
  enabled INTEGER NOT NULL DEFAULT 1,
  max_attempts INTEGER NOT NULL DEFAULT 3
);
-- What is due next, without reading every schedule.
CREATE INDEX IF NOT EXISTS _honkerx_scheduler_due
  ON _honker_scheduler_tasks(next_fire_at)
  WHERE enabled = 1;

-- What a schedule does with times that have passed while nothing fired it: 1 fires the last of
-- them, 2 none. 0 or no row: all of them, as honker does. The rest is for operators.
CREATE TABLE IF NOT EXISTS _honkerx_schedules (
  name TEXT PRIMARY KEY,
  missed INTEGER NOT NULL,
  last_fire_ms INTEGER,  -- the time that last_job was due, or at which it was triggered
  last_job INTEGER,
  last_skip_ms INTEGER,  -- the last time that was skipped
  skipped INTEGER        -- how many were
) WITHOUT ROWID;
-- Other bindings delete schedules without knowing of the side row.
CREATE TRIGGER IF NOT EXISTS _honkerx_schedule_gone AFTER DELETE ON _honker_scheduler_tasks
BEGIN
  DELETE FROM _honkerx_schedules WHERE name = OLD.name;
END;

-- Results of jobs, JSON text. expires_at NULL: kept for ever.
CREATE TABLE IF NOT EXISTS _honker_results (
  job_id INTEGER PRIMARY KEY,
  value TEXT,
  created_at INTEGER NOT NULL DEFAULT (unixepoch()),
  expires_at INTEGER
);

-- Events. One sequence of offsets for all topics.
CREATE TABLE IF NOT EXISTS _honker_stream (
  offset INTEGER PRIMARY KEY AUTOINCREMENT,
  topic TEXT NOT NULL,
  key TEXT,
  payload TEXT NOT NULL,
  created_at INTEGER NOT NULL DEFAULT (unixepoch())
);
CREATE INDEX IF NOT EXISTS _honker_stream_topic
  ON _honker_stream(topic, offset);

-- How far each consumer of a topic has come.
CREATE TABLE IF NOT EXISTS _honker_stream_consumers (
  name TEXT NOT NULL,
  topic TEXT NOT NULL,
  offset INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (name, topic)
);

-- The version of our own part, under 'schema_version'. user_version and
-- application_id belong to the application.
CREATE TABLE IF NOT EXISTS _honkerx_meta (
  key TEXT PRIMARY KEY,
  value TEXT NOT NULL
);

-- What a live job carries beyond honker's columns. No row for a plain job.
CREATE TABLE IF NOT EXISTS _honkerx_job (
  job_id INTEGER PRIMARY KEY,
  last_error TEXT,
  queue TEXT,            -- of a job with a unique key
  unique_key TEXT,
  unique_until INTEGER,  -- has it 0: until it has ended, 1: until its first claim, 2: no longer
  base INTEGER,          -- of a requeued job: its attempts before that
  headers TEXT,          -- JSON object
  key TEXT,              -- what it shares a limit by; then also queue and the three that follow
  slot INTEGER,          -- 0: it waits, 1: it runs, 2: it is held until its key has room
  priority INTEGER,      -- while it is held, for the order of those that are: of the job, or 0 for all
  run_at INTEGER,
  batch INTEGER,         -- that it is a member of
  progress TEXT,         -- JSON
  checkpoint TEXT,       -- JSON
  wait INTEGER,          -- by its run_at: 1 for its start by the rate of its key, 2 for the end of a pause of it, 3 both
  requeue INTEGER        -- of a requeued job: the entry of the audit
);
-- The jobs of a key that wait, that run, and that are held, these in their order; and the members of a
-- batch.
CREATE INDEX IF NOT EXISTS _honkerx_job_key
  ON _honkerx_job(queue, key, slot, priority DESC, run_at, job_id)
  WHERE key IS NOT NULL;
CREATE INDEX IF NOT EXISTS _honkerx_job_batch
  ON _honkerx_job(batch)
  WHERE batch IS NOT NULL;
-- What has a unique key: job_id, or next_id, a job that is held until job_id has ended. Until
-- until_ms the key is taken even if both are gone. first_ms is when it was taken. The triggers that
-- keep this true are made with the first key of a file.
CREATE TABLE IF NOT EXISTS _honkerx_unique (
  queue TEXT NOT NULL,
  key TEXT NOT NULL,
  job_id INTEGER NOT NULL,
  next_id INTEGER,
  until_ms INTEGER,
  first_ms INTEGER NOT NULL,
  PRIMARY KEY (queue, key)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS _honkerx_unique_timed
  ON _honkerx_unique(job_id)
  WHERE until_ms IS NOT NULL;
-- What a dead job takes along, and what the last jobs that went took with them, slot id % 64: other
-- bindings delete a job before it is dead.
CREATE TABLE IF NOT EXISTS _honkerx_dead_job (
  job_id INTEGER PRIMARY KEY,
  unique_key TEXT,
  unique_until INTEGER,
  base INTEGER,
  headers TEXT,
  key TEXT,
  batch INTEGER,
  progress TEXT,
  checkpoint TEXT
);
CREATE INDEX IF NOT EXISTS _honkerx_dead_job_batch
  ON _honkerx_dead_job(batch)
  WHERE batch IS NOT NULL;
CREATE TABLE IF NOT EXISTS _honkerx_gone (
  slot INTEGER PRIMARY KEY,
  job_id INTEGER NOT NULL,
  unique_key TEXT,
  unique_until INTEGER,
  base INTEGER,
  headers TEXT,
  key TEXT,
  batch INTEGER,
  progress TEXT,
  checkpoint TEXT
);
-- Other bindings delete jobs without knowing of the side row.
CREATE TRIGGER IF NOT EXISTS _honkerx_job_gone AFTER DELETE ON _honker_live
BEGIN
  DELETE FROM _honkerx_job WHERE job_id = OLD.id;
END;

-- What holds for a queue, in all processes. paused_ms NULL: it is not paused. until_ms is a whole
-- second, and NULL for a pause without an end. While there is a pause, the trigger _honkerx_gate
-- keeps other bindings from claiming jobs of the queue.
-- The others are NULL where there is no bound: how many jobs run at a time, of the queue and of a
-- key; a rate, n in per_ms and burst at once, with the time of its next start; and how many jobs
-- are kept that are dead, and how long. Of those that are done none is kept where done_count is
-- NULL, and 0 is no bound; done_kept is how many there are, NULL where there never was one.
CREATE TABLE IF NOT EXISTS _honkerx_queues (
  queue TEXT PRIMARY KEY,
  paused_ms INTEGER,
  until_ms INTEGER,
  reason TEXT,
  who TEXT,
  running INTEGER,
  per_key INTEGER,
  in_order INTEGER,      -- 1: jobs of a key run one at a time, as they were enqueued
  rate_n INTEGER,
  rate_per_ms INTEGER,
  rate_burst INTEGER,
  rate_tat_ms INTEGER,   -- with a fraction
  key_rate_n INTEGER,
  key_rate_per_ms INTEGER,
  key_rate_burst INTEGER,
  done_count INTEGER,
  done_age_ms INTEGER,
  done_kept INTEGER,
  dead_count INTEGER,
  dead_age_ms INTEGER,
  keys_paused INTEGER,   -- how many keys of the queue are; NULL: none
  claim_ms INTEGER,      -- the time of a claim while it is made, for the triggers; NULL between transactions
  fit_job INTEGER,       -- not NULL while its jobs are fitted to limits that have changed: done up to this id
  fit_key TEXT,          -- with it, while the starts of its keys are forgotten: done up to this key
  fit_rate INTEGER       -- with it, 1: also the starts that jobs have reserved
) WITHOUT ROWID;
-- Those that keep jobs that are done.
CREATE INDEX IF NOT EXISTS _honkerx_queues_done
  ON _honkerx_queues(queue)
  WHERE done_count IS NOT NULL;
-- Keys that are paused or have a rate.
CREATE TABLE IF NOT EXISTS _honkerx_keys (
  queue TEXT NOT NULL,
  key TEXT NOT NULL,
  paused_ms INTEGER,
  until_ms INTEGER,
  reason TEXT,
  who TEXT,
  tat_ms INTEGER,        -- until then its starts are spent; with a fraction
  next_ms INTEGER,       -- and those that are reserved
  PRIMARY KEY (queue, key)
) WITHOUT ROWID;

-- Places that cancelled jobs still take in queues with limits, since their handlers may run on. One
-- counts as a running job until until_ms, the end of its lease, and its worker deletes it when the
-- handler has returned.
CREATE TABLE IF NOT EXISTS _honkerx_cancelled (
  job_id INTEGER PRIMARY KEY,
  queue TEXT NOT NULL,
  key TEXT,
  worker TEXT NOT NULL,
  attempt INTEGER NOT NULL,
  until_ms INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS _honkerx_cancelled_key
  ON _honkerx_cancelled(queue, key, until_ms);

-- Jobs that were acked, of queues that keep them. To insert a row is the ack: a trigger removes the
-- live job in the same statement, and the oldest row of a queue that has twice of what it keeps.
CREATE TABLE IF NOT EXISTS _honkerx_done (
  job_id INTEGER PRIMARY KEY,
  queue TEXT NOT NULL,
  payload TEXT NOT NULL,
  priority INTEGER NOT NULL,
  run_at INTEGER NOT NULL,
  worker_id TEXT,
  attempts INTEGER NOT NULL,
  max_attempts INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  expires_at INTEGER,
  done_ms INTEGER NOT NULL,
  last_error TEXT,
  base INTEGER,
  unique_key TEXT,
  headers TEXT,
  key TEXT,
  batch INTEGER,
  progress TEXT
);
CREATE INDEX IF NOT EXISTS _honkerx_done_queue
  ON _honkerx_done(queue, done_ms, job_id);
CREATE TRIGGER IF NOT EXISTS _honkerx_done_acked BEFORE INSERT ON _honkerx_done
BEGIN
  DELETE FROM _honkerx_done WHERE job_id = NEW.job_id;
  DELETE FROM _honker_live WHERE id = NEW.job_id;
  SELECT RAISE(ABORT, 'a trigger keeps a job that is done from being removed')
  WHERE EXISTS (SELECT 1 FROM _honker_live WHERE id = NEW.job_id);
  UPDATE _honkerx_queues SET done_kept = done_kept + 1 WHERE queue = NEW.queue;
  DELETE FROM _honkerx_done WHERE job_id = (
    SELECT d.job_id FROM _honkerx_queues AS k JOIN _honkerx_done AS d ON d.queue = k.queue
    WHERE k.queue = NEW.queue AND k.done_count > 0 AND k.done_kept > 2 * k.done_count
    ORDER BY d.done_ms, d.job_id LIMIT 1);
END;
CREATE TRIGGER IF NOT EXISTS _honkerx_done_gone AFTER DELETE ON _honkerx_done
BEGIN
  UPDATE _honkerx_queues SET done_kept = done_kept - 1 WHERE queue = OLD.queue;
END;

-- What a job waits for: job_id, or where that is 0 the batch. state 0: open, 1: done, 2: dead.
-- if_dead 1: a dead one will do.
CREATE TABLE IF NOT EXISTS _honkerx_after (
  job_id INTEGER NOT NULL,
  batch INTEGER NOT NULL DEFAULT 0,
  waiter INTEGER NOT NULL,
  state INTEGER NOT NULL DEFAULT 0,
  if_dead INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (job_id, batch, waiter)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS _honkerx_after_waiter
  ON _honkerx_after(waiter, state);
-- Members are added to a batch while it is open. done_ms: sealed, and none of them is left.
CREATE TABLE IF NOT EXISTS _honkerx_batches (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  name TEXT,
  headers TEXT,
  total INTEGER NOT NULL DEFAULT 0,
  open INTEGER NOT NULL DEFAULT 1,
  created_ms INTEGER NOT NULL,
  done_ms INTEGER
);
-- Attempts that failed, of jobs that are live or dead.
CREATE TABLE IF NOT EXISTS _honkerx_attempts (
  job_id INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  worker TEXT NOT NULL,
  start_ms INTEGER NOT NULL,
  ran_ms INTEGER NOT NULL,
  error TEXT,
  log TEXT,
  PRIMARY KEY (job_id, attempt)
) WITHOUT ROWID;
-- The starts of attempts that last. A row counts only while its job is claimed by this worker with this attempt; other rows are
-- deleted when the next start is saved.
CREATE TABLE IF NOT EXISTS _honkerx_starts (
  job_id INTEGER PRIMARY KEY,
  worker TEXT NOT NULL,
  attempt INTEGER NOT NULL,
  start_ms INTEGER NOT NULL
);
-- The Work loops that run, and by what the operating system tells whether their processes live.
CREATE TABLE IF NOT EXISTS _honkerx_workers (
  worker TEXT NOT NULL,
  queue TEXT NOT NULL,
  host TEXT NOT NULL,
  boot TEXT,
  pid_space TEXT,
  pid INTEGER,
  pid_start INTEGER,
  version TEXT,
  slots INTEGER,
  since_ms INTEGER NOT NULL,
  seen_ms INTEGER NOT NULL,
  PRIMARY KEY (worker, queue)
) WITHOUT ROWID;

-- What happened to the jobs of a queue in a minute, the unix time / 60. The times are sums.
CREATE TABLE IF NOT EXISTS _honkerx_minutes (
  minute INTEGER NOT NULL,
  queue TEXT NOT NULL,
  enqueued INTEGER NOT NULL DEFAULT 0,
  claimed INTEGER NOT NULL DEFAULT 0,
  acked INTEGER NOT NULL DEFAULT 0,
  retried INTEGER NOT NULL DEFAULT 0,
  died INTEGER NOT NULL DEFAULT 0,
  snoozed INTEGER NOT NULL DEFAULT 0,
  wait_ms INTEGER NOT NULL DEFAULT 0,
  ran_ms INTEGER NOT NULL DEFAULT 0,
  max_wait_ms INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (minute, queue)
) WITHOUT ROWID;
-- What operators have changed, to how many jobs; filter is JSON.
CREATE TABLE IF NOT EXISTS _honkerx_audit (
  id INTEGER PRIMARY KEY,
  at_ms INTEGER NOT NULL,
  who TEXT,
  remote TEXT,
  verb TEXT NOT NULL,
  filter TEXT,
  n INTEGER NOT NULL
);

-- What honker's row of a consumer has no place for. topic may be a pattern, "orders:*".
-- filter is JSON, so that any process can count the events that the consumer has not seen.
CREATE TABLE IF NOT EXISTS _honkerx_consumers (
  topic TEXT NOT NULL,
  name TEXT NOT NULL,
  created_ms INTEGER NOT NULL,
  last_ack_ms INTEGER,
  filter TEXT,
  -- where the consumer was at a time, and the age of its next event then; and the same at least ten minutes earlier
  mark_ms INTEGER,
  mark_offset INTEGER,
  mark_behind_ms INTEGER,
  past_ms INTEGER,
  past_offset INTEGER,
  past_behind_ms INTEGER,
  PRIMARY KEY (topic, name)
) WITHOUT ROWID;

-- How much of a topic is kept; 0 is no bound. No row: everything.
CREATE TABLE IF NOT EXISTS _honkerx_retention (
  topic TEXT PRIMARY KEY,
  max_count INTEGER NOT NULL,
  max_age_ms INTEGER NOT NULL
) WITHOUT ROWID;

-- Groups of competing consumers. Events up to cursor have been given out. turn counts
-- the group's claims and returns: it fences claims, and orders what came back.
CREATE TABLE IF NOT EXISTS _honkerx_groups (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  topic TEXT NOT NULL,
  name TEXT NOT NULL,
  cursor INTEGER NOT NULL,
  turn INTEGER NOT NULL DEFAULT 0,
  filter TEXT,
  created_ms INTEGER NOT NULL,
  UNIQUE (topic, name)
);
CREATE TABLE IF NOT EXISTS _honkerx_group_members (
  group_id INTEGER NOT NULL,
  name TEXT NOT NULL,
  instance TEXT NOT NULL,
  joined_ms INTEGER NOT NULL,
  expires_ms INTEGER NOT NULL,
  PRIMARY KEY (group_id, name)
) WITHOUT ROWID;
-- Events that a group was given and has not acked. state 0: holder, a member's instance,
-- has it until deadline_ms. 1: it came back, and waits until deadline_ms. 2: dead since
-- deadline_ms.
CREATE TABLE IF NOT EXISTS _honkerx_group_claims (
  group_id INTEGER NOT NULL,
  offset INTEGER NOT NULL,
  state INTEGER NOT NULL,
  holder TEXT NOT NULL,
  token INTEGER NOT NULL,
  deadline_ms INTEGER NOT NULL,
  attempts INTEGER NOT NULL,
  last_error TEXT,
  PRIMARY KEY (group_id, offset)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS _honkerx_group_claims_deadline
  ON _honkerx_group_claims(group_id, state, deadline_ms);
-- What came back, the last first.
CREATE INDEX IF NOT EXISTS _honkerx_group_claims_back
  ON _honkerx_group_claims(group_id, token, offset)
  WHERE state = 1;
-- Dead ones keep their events.
CREATE INDEX IF NOT EXISTS _honkerx_group_claims_dead
  ON _honkerx_group_claims(offset)
  WHERE state = 2;
