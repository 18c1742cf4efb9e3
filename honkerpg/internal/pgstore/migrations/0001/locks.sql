-- Named locks with a lifetime, and fixed windows of rate limits.
CREATE TABLE honker.lock (
  name text COLLATE "C" PRIMARY KEY,
  owner text NOT NULL,
  expires_at timestamptz NOT NULL
) WITH (fillfactor = 50);

-- The fencing tokens of all locks. A token per name would leave a row for every name ever used.
CREATE SEQUENCE honker.lock_token;

CREATE TABLE honker.rate (
  name text COLLATE "C" NOT NULL,
  window_start timestamptz NOT NULL,
  count bigint NOT NULL,
  PRIMARY KEY (name, window_start)
) WITH (fillfactor = 50);
