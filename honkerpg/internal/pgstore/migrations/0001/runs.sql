-- The runs of package flow, with their steps and signals. A run is a job of the queue flow:<flow>.
--
-- A transaction locks a run before its job, and the run of a called flow before the run that has called it. Signals,
-- cancellations and the ends of called runs lock the run that they resume. So does the suspension of a run, which then
-- looks again for a reason to go on.

-- job_id is the job of a run, which keeps its ID as a dead letter. outcome is NULL until the run is over. failure is the
-- error for which a run is being undone.
CREATE TABLE honker.flow_run (
  job_id bigint PRIMARY KEY,
  flow text COLLATE "C" NOT NULL,
  id text COLLATE "C" NOT NULL,
  parent bigint,                    -- job of the run that called it
  started_at timestamptz NOT NULL,
  ended_at timestamptz,
  outcome text,                     -- done or cancelled
  cancelled boolean NOT NULL DEFAULT false,
  failure text,
  keep_until timestamptz            -- of a run that is over; NULL: kept forever
) WITH (fillfactor = 70);
CREATE UNIQUE INDEX flow_run_id ON honker.flow_run (flow, id);
CREATE INDEX flow_run_kept ON honker.flow_run (keep_until) WHERE keep_until IS NOT NULL;
CREATE INDEX flow_run_open ON honker.flow_run (job_id) WHERE ended_at IS NULL;

-- The steps of runs. kind is 0 for a step, 1 for a sleep, 2 for a wait, 3 for a call, 4 for a version and 5 for an undo.
CREATE TABLE honker.flow_step (
  job_id bigint NOT NULL,
  name text COLLATE "C" NOT NULL,
  kind smallint NOT NULL,
  seq int NOT NULL,                 -- position among the steps of the run
  value text,
  began_at timestamptz NOT NULL,
  ended_at timestamptz,
  until_at timestamptz,             -- the end of a sleep, or of the time that a wait waits
  PRIMARY KEY (job_id, name)
);

-- The first signal of each name to a run.
CREATE TABLE honker.flow_signal (
  flow text COLLATE "C" NOT NULL,
  id text COLLATE "C" NOT NULL,
  name text COLLATE "C" NOT NULL,
  value text NOT NULL,              -- JSON
  at timestamptz NOT NULL,
  PRIMARY KEY (flow, id, name)
);

-- Makes the suspended run of a job due, and returns its flow.
CREATE FUNCTION honker.flow_resume(job bigint, at timestamptz) RETURNS text LANGUAGE plpgsql SET enable_seqscan = off SET jit = off AS $$
DECLARE name text;
BEGIN
  SELECT r.flow INTO name FROM honker.flow_run r WHERE r.job_id = flow_resume.job FOR NO KEY UPDATE;
  IF FOUND THEN
    UPDATE honker.job j SET run_at = flow_resume.at WHERE j.id = flow_resume.job AND j.state + 0 = 0 AND j.run_at > flow_resume.at;
  END IF;
  RETURN name;
END $$;

-- Records a signal to a run that is held, and makes the run due if it waits for the signal. false: it has that signal.
CREATE FUNCTION honker.flow_signal_(flow text, id text, name text, value text, at timestamptz) RETURNS boolean
LANGUAGE plpgsql SET enable_seqscan = off SET jit = off AS $$
DECLARE job bigint;
BEGIN
  INSERT INTO honker.flow_signal AS g (flow, id, name, value, at)
  VALUES (flow_signal_.flow, flow_signal_.id, flow_signal_.name, flow_signal_.value, flow_signal_.at) ON CONFLICT ON CONSTRAINT flow_signal_pkey DO NOTHING;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  SELECT r.job_id INTO job FROM honker.flow_run r JOIN honker.flow_step s ON s.job_id = r.job_id AND s.name = flow_signal_.name AND s.kind = 2
  WHERE r.flow = flow_signal_.flow AND r.id = flow_signal_.id;
  IF FOUND THEN
    PERFORM honker.flow_resume(job, at);
  END IF;
  RETURN true;
END $$;

-- Deletes the steps of a run from seq on, and forgets that it was cancelled or undone. false: a worker holds the job.
CREATE FUNCTION honker.flow_restart(job bigint, seq bigint, at timestamptz) RETURNS boolean LANGUAGE plpgsql SET enable_seqscan = off SET jit = off AS $$
DECLARE held boolean;
BEGIN
  SELECT j.state = 1 AND j.lease_until >= flow_restart.at INTO held FROM honker.job j WHERE j.id = flow_restart.job FOR NO KEY UPDATE;
  IF held THEN
    RETURN false;
  END IF;
  DELETE FROM honker.flow_step s WHERE s.job_id = flow_restart.job AND s.seq >= flow_restart.seq;
  UPDATE honker.flow_run r SET cancelled = false, failure = NULL WHERE r.job_id = flow_restart.job;
  RETURN true;
END $$;

-- A run goes on when a run that it called has ended, however it did.
CREATE FUNCTION honker.flow_returned() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE name text;
BEGIN
  SELECT honker.flow_resume(r.parent, clock_timestamp()) INTO name FROM honker.flow_run r WHERE r.job_id = OLD.id AND r.parent IS NOT NULL;
  IF name IS NOT NULL THEN
    PERFORM honker.wake(honker.queue_signal('flow:' || name), '');
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER honker_flow_returned AFTER DELETE ON honker.job FOR EACH ROW WHEN (starts_with(OLD.queue, 'flow:')) EXECUTE FUNCTION honker.flow_returned();
