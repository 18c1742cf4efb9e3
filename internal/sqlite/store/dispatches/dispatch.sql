-- The tables of dispatch, made by the first Send or the first actor.
--
-- Every statement may run again on a file that has it already. Times are unix milliseconds. The
-- triggers run in every process that writes the file, those of other bindings included, so they use
-- built-in functions only, and do nothing for jobs that were not sent by dispatch.

-- A row for each job that was sent, kept for an hour after its end. job_id is what Send has returned.
-- run_id is the live job that stands for it: job_id itself, or a copy in a legacy queue that was
-- claimed first. events is the topic of its log; reply_queue and reply_topic get a copy of its
-- outcome. A stopped job that was running is held until held_until_ms, or its handler's end.
CREATE TABLE IF NOT EXISTS _honkerx_dispatch_jobs (
  job_id INTEGER PRIMARY KEY,
  run_id INTEGER NOT NULL,
  queue TEXT NOT NULL,
  events TEXT,
  reply_queue TEXT,
  reply_topic TEXT,
  sent_ms INTEGER NOT NULL,
  started_ms INTEGER,
  ended_ms INTEGER,
  stop_ms INTEGER,
  held_until_ms INTEGER
);

-- Copies of a job in legacy queues. They go with the row of the job.
CREATE TABLE IF NOT EXISTS _honkerx_dispatch_twins (
  job_id INTEGER PRIMARY KEY,
  sent_id INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS _honkerx_dispatch_twins_sent
  ON _honkerx_dispatch_twins(sent_id);

-- The actors that live. value is JSON: pid, hostname, started_at, version, capabilities,
-- last_heartbeat, in_flight, busy, paused.
CREATE TABLE IF NOT EXISTS _honkerx_dispatch_presence (
  key TEXT PRIMARY KEY NOT NULL,
  owner TEXT NOT NULL,
  value TEXT NOT NULL,
  expires_ms INTEGER NOT NULL
) WITHOUT ROWID;
