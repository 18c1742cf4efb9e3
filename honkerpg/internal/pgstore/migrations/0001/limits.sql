-- Settings of a queue that hold in all processes: its pause, its limits, and how many finished jobs it keeps. NULL is
-- no pause and no limit.
CREATE TABLE honker.queue (
  queue text COLLATE "C" PRIMARY KEY,
  paused_at timestamptz,
  paused_until timestamptz,         -- NULL: no end
  reason text,
  who text,
  running bigint,
  per_key bigint,
  in_order boolean NOT NULL DEFAULT false,
  rate_n bigint,
  rate_per interval,
  rate_burst bigint,
  rate_tat timestamptz,             -- until then the starts of the rate are spent
  key_rate_n bigint,
  key_rate_per interval,
  key_rate_burst bigint,
  done_count bigint,                -- NULL: keeps none, 0: no bound
  done_age interval,
  dead_count bigint,
  dead_age interval,
  keys_paused bigint                -- how many keys are paused
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200);

-- Keys that are paused or have a rate.
CREATE TABLE honker.key (
  queue text COLLATE "C" NOT NULL,
  key text COLLATE "C" NOT NULL,
  paused_at timestamptz,
  paused_until timestamptz,
  reason text,
  who text,
  tat timestamptz,                  -- until then the starts of the key are spent
  next_at timestamptz,              -- and those that held jobs have reserved
  PRIMARY KEY (queue, key)
) WITH (fillfactor = 50);

-- Slots that cancelled jobs still take in queues with limits, since their handlers may run on. A slot counts as a
-- running job until until_at, the end of the job's lease.
CREATE TABLE honker.place (
  job_id bigint PRIMARY KEY,
  queue text COLLATE "C" NOT NULL,
  key text COLLATE "C",
  worker text NOT NULL,
  attempt bigint NOT NULL,
  until_at timestamptz NOT NULL
);
CREATE INDEX place_key ON honker.place (queue, key, until_at);
