-- The tables of a relay, made by its first write. Those of a family have its name after the
-- prefix, such as _honkerx_relay_billing_messages. The last part of each name has no
-- underscore, so no table of a family has the name of another family's.
--
-- Every statement may run again on a file that has it already. key came later: the first write of a
-- version that knows the column adds it. Times are unix milliseconds.

-- The number of partitions of each queue. It does not change.
CREATE TABLE IF NOT EXISTS _honkerx_relay_queues (
  name TEXT PRIMARY KEY NOT NULL,
  partitions INTEGER NOT NULL,
  created_ms INTEGER NOT NULL
) WITHOUT ROWID;

-- Messages that are not finished. Ids rise in the order of the commits, and are never reused.
-- A plain INSERT of (queue, payload) is a proper message. key is what the partition was chosen by, ''
-- where it was given as a number, and in messages of before the column was added.
CREATE TABLE IF NOT EXISTS _honkerx_relay_messages (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  queue TEXT NOT NULL,
  partition INTEGER NOT NULL DEFAULT 0,
  type TEXT NOT NULL DEFAULT 'application/json',
  payload BLOB NOT NULL,
  created_ms INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)),
  key TEXT NOT NULL DEFAULT ''
);
CREATE INDEX IF NOT EXISTS _honkerx_relay_order
  ON _honkerx_relay_messages(queue, partition, id);

-- A row for each partition of a queue, from its first use. Messages up to cursor are finished,
-- and there were processed of them: the number of a message is processed plus its rank among
-- the rest. owner holds the partition until lease_until_ms; '' is no owner. epoch counts the
-- takes and fences their progress. taken orders the partitions by their last take. attempts are the
-- takes of the first message that is left; until retry_at_ms it waits.
CREATE TABLE IF NOT EXISTS _honkerx_relay_partitions (
  queue TEXT NOT NULL,
  partition INTEGER NOT NULL,
  processed INTEGER NOT NULL DEFAULT 0,
  cursor INTEGER NOT NULL DEFAULT 0,
  owner TEXT NOT NULL DEFAULT '',
  epoch INTEGER NOT NULL DEFAULT 0,
  lease_until_ms INTEGER NOT NULL DEFAULT 0,
  taken INTEGER NOT NULL DEFAULT 0,
  attempts INTEGER NOT NULL DEFAULT 0,
  retry_at_ms INTEGER NOT NULL DEFAULT 0,
  last_error TEXT,
  PRIMARY KEY (queue, partition)
) WITHOUT ROWID;

-- Messages that were rejected or have failed too often. id is the message's. state is
-- 'pending'; 'replaying', held by holder until hold_until_ms; 'resolved'; or 'discarded'. In
-- the others hold_until_ms is when the row got there, 0 for one that nothing has touched.
CREATE TABLE IF NOT EXISTS _honkerx_relay_dead (
  id INTEGER PRIMARY KEY,
  queue TEXT NOT NULL,
  partition INTEGER NOT NULL,
  seq INTEGER NOT NULL,
  type TEXT NOT NULL,
  payload BLOB NOT NULL,
  created_ms INTEGER NOT NULL,
  attempts INTEGER NOT NULL,
  last_error TEXT,
  died_ms INTEGER NOT NULL,
  state TEXT NOT NULL DEFAULT 'pending',
  holder TEXT NOT NULL DEFAULT '',
  hold_until_ms INTEGER NOT NULL DEFAULT 0,
  key TEXT NOT NULL DEFAULT ''
);
CREATE INDEX IF NOT EXISTS _honkerx_relay_letters
  ON _honkerx_relay_dead(queue, state, hold_until_ms);
CREATE INDEX IF NOT EXISTS _honkerx_relay_deadkeys
  ON _honkerx_relay_dead(queue, key) WHERE key <> '';
