-- The table of a move to another database, made by the first move.
--
-- Every statement may run again on a file that has it already.

-- Parcels that have left the file and may not have arrived. parcel is JSON, see jobs.go. Numbers are never reused.
CREATE TABLE IF NOT EXISTS _honkerx_moving (
  n INTEGER PRIMARY KEY AUTOINCREMENT,
  parcel TEXT NOT NULL
);

-- The queues of relays that are moved. A partition is closed when the lease of its handler ends.
CREATE TABLE IF NOT EXISTS _honkerx_moving_relays (
  family TEXT NOT NULL,
  queue TEXT NOT NULL,
  PRIMARY KEY (family, queue)
) WITHOUT ROWID;
