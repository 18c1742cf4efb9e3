-- The tables of the example, in the same file as those of honker.

-- The published part of the log, updated in the transaction that publishes the events. A single row.
CREATE TABLE IF NOT EXISTS place (
  id INTEGER PRIMARY KEY CHECK (id = 1),
  bytes INTEGER NOT NULL,
  lines INTEGER NOT NULL,
  malformed INTEGER NOT NULL
) STRICT;
INSERT INTO place (id, bytes, lines, malformed) VALUES (1, 0, 0, 0) ON CONFLICT DO NOTHING;

-- Requests per path, updated in the transaction that saves the counter's offset.
CREATE TABLE IF NOT EXISTS traffic (
  path TEXT PRIMARY KEY,
  requests INTEGER NOT NULL,
  bytes INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Requests per country, updated in the transaction that acks the event.
CREATE TABLE IF NOT EXISTS visits (
  country TEXT PRIMARY KEY,
  requests INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
