-- The Work loops that run, and by what the operating system tells whether their processes live.
CREATE TABLE honker.worker (
  worker text COLLATE "C" NOT NULL,
  queue text COLLATE "C" NOT NULL,
  host text NOT NULL,
  boot text NOT NULL,
  pid_space text NOT NULL,
  pid bigint NOT NULL,
  pid_start bigint NOT NULL,
  version text NOT NULL,
  slots bigint NOT NULL,
  since timestamptz NOT NULL,
  seen_at timestamptz NOT NULL,
  PRIMARY KEY (worker, queue)
) WITH (fillfactor = 50);

-- The traffic of a queue in a minute. Each connection adds to a row of its slot, so that processes seldom wait for each
-- other; the sums of the slots are the traffic.
CREATE TABLE honker.minute (
  minute timestamptz NOT NULL,
  queue text COLLATE "C" NOT NULL,
  slot smallint NOT NULL,
  enqueued bigint NOT NULL,
  claimed bigint NOT NULL,
  acked bigint NOT NULL,
  retried bigint NOT NULL,
  died bigint NOT NULL,
  snoozed bigint NOT NULL,
  wait_ms bigint NOT NULL,
  ran_ms bigint NOT NULL,
  max_wait_ms bigint NOT NULL,
  PRIMARY KEY (minute, queue, slot)
) WITH (fillfactor = 50);
-- The minutes of one queue. An addition changes no column of it, so it stays cheap.
CREATE INDEX minute_queue ON honker.minute (queue, minute);

-- Changes made by operators.
CREATE TABLE honker.audit (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at timestamptz NOT NULL,
  who text,
  remote text,
  verb text NOT NULL,
  filter text,                      -- JSON
  n bigint NOT NULL
);
