-- The example's own tables, beside honker's in the same file.

-- How far the log is published: written together with the events. One row.
CREATE TABLE IF NOT EXISTS place (
  id INTEGER PRIMARY KEY CHECK (id = 1),
  bytes INTEGER NOT NULL,
  lines INTEGER NOT NULL,
  malformed INTEGER NOT NULL
) STRICT;
INSERT INTO place (id, bytes, lines, malformed) VALUES (1, 0, 0, 0) ON CONFLICT DO NOTHING;

-- What the counter has counted: written together with its offset.
CREATE TABLE IF NOT EXISTS traffic (
  path TEXT PRIMARY KEY,
  requests INTEGER NOT NULL,
  bytes INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- What the resolvers have found out: written together with their acks.
CREATE TABLE IF NOT EXISTS visits (
  country TEXT PRIMARY KEY,
  requests INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
