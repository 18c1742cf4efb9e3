-- The tables of package flow, made by the first run of a file.
--
-- Every statement may run again on a file that has it already. Times are unix milliseconds. The
-- triggers run in every process that writes the file, other bindings included, so they use
-- built-in functions only.

-- A row for each run. job_id is its job, in the queue flow:<flow>, which keeps its id as a dead
-- letter. parent is the job of the run that called it. outcome is NULL until the run is over. failure
-- is the error for which a run is being undone. The row of a run that is over is kept until
-- keep_until_ms, or for ever if that is NULL.
CREATE TABLE IF NOT EXISTS _honkerx_flow_runs (
  job_id INTEGER PRIMARY KEY,
  flow TEXT NOT NULL,
  id TEXT NOT NULL,
  parent INTEGER,
  started_ms INTEGER NOT NULL,
  ended_ms INTEGER,
  outcome TEXT,
  cancelled INTEGER NOT NULL DEFAULT 0,
  failure TEXT,
  keep_until_ms INTEGER
);
CREATE UNIQUE INDEX IF NOT EXISTS _honkerx_flow_runs_id ON _honkerx_flow_runs(flow, id);
CREATE INDEX IF NOT EXISTS _honkerx_flow_runs_kept ON _honkerx_flow_runs(keep_until_ms)
  WHERE keep_until_ms IS NOT NULL;

-- The steps of a run, in the order of seq. kind is 0 for a step, 1 for a sleep, 2 for a wait, 3 for a
-- call, 4 for a version and 5 for an undo. ended_ms is NULL until the step has ended. until_ms is the
-- end of a sleep, or of the time that a wait waits.
CREATE TABLE IF NOT EXISTS _honkerx_flow_steps (
  job_id INTEGER NOT NULL,
  name TEXT NOT NULL,
  kind INTEGER NOT NULL,
  seq INTEGER NOT NULL,
  value TEXT,
  began_ms INTEGER NOT NULL,
  ended_ms INTEGER,
  until_ms INTEGER,
  PRIMARY KEY (job_id, name)
) WITHOUT ROWID;

-- The first signal of each name to a run. Any program may insert a row.
CREATE TABLE IF NOT EXISTS _honkerx_flow_signals (
  flow TEXT NOT NULL,
  id TEXT NOT NULL,
  name TEXT NOT NULL,
  value TEXT NOT NULL DEFAULT 'null',
  at_ms INTEGER NOT NULL DEFAULT (CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)),
  PRIMARY KEY (flow, id, name)
) WITHOUT ROWID;

-- A signal to a run that is over or never was is refused.
CREATE TRIGGER IF NOT EXISTS _honkerx_flow_unknown BEFORE INSERT ON _honkerx_flow_signals
WHEN NOT EXISTS (SELECT 1 FROM _honkerx_flow_runs WHERE flow = NEW.flow AND id = NEW.id AND ended_ms IS NULL)
BEGIN
  SELECT RAISE(ABORT, 'no such run, or it is over');
END;

-- A run that waits for the signal goes on.
CREATE TRIGGER IF NOT EXISTS _honkerx_flow_signalled AFTER INSERT ON _honkerx_flow_signals
BEGIN
  UPDATE _honker_live SET run_at = unixepoch()
  WHERE id = (SELECT job_id FROM _honkerx_flow_runs WHERE flow = NEW.flow AND id = NEW.id)
    AND state = 'pending' AND run_at > unixepoch()
    AND EXISTS (SELECT 1 FROM _honkerx_flow_steps AS s WHERE s.job_id = _honker_live.id AND s.name = NEW.name AND s.kind = 2);
END;

-- A run goes on when a run that it called has ended, however it did. Other bindings delete a job
-- before they add its dead letter, so the caller looks two seconds later if there is no other trace.
CREATE TRIGGER IF NOT EXISTS _honkerx_flow_returned AFTER DELETE ON _honker_live
WHEN OLD.queue GLOB 'flow:*'
BEGIN
  UPDATE _honker_live SET run_at = unixepoch() + iif(
      EXISTS (SELECT 1 FROM _honkerx_flow_runs WHERE job_id = OLD.id AND ended_ms IS NOT NULL)
      OR EXISTS (SELECT 1 FROM _honker_dead WHERE id = OLD.id), 0, 2)
  WHERE id = (SELECT parent FROM _honkerx_flow_runs WHERE job_id = OLD.id) AND state = 'pending' AND run_at > unixepoch();
END;
