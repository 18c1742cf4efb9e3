-- Tasks fire in the order of their ids, which is the order of their first registration.
CREATE TABLE honker.schedule (
  id bigint GENERATED ALWAYS AS IDENTITY,
  name text COLLATE "C" PRIMARY KEY,
  next_at timestamptz NOT NULL,
  expires interval,
  priority bigint NOT NULL,
  max_attempts bigint NOT NULL,
  missed bigint NOT NULL,
  enabled boolean NOT NULL DEFAULT true,
  queue text NOT NULL,
  spec text NOT NULL,
  payload text NOT NULL,
  last_fire timestamptz,             -- the time that last_job was due, or at which it was triggered
  last_job bigint,
  last_skip timestamptz,             -- the last time that was skipped because it was missed
  skipped bigint NOT NULL DEFAULT 0  -- how many were
) WITH (fillfactor = 50);
CREATE INDEX schedule_due ON honker.schedule (next_at) WHERE enabled;
