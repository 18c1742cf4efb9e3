-- One row per order that has arrived. The table has no constraint against duplicates:
-- detecting them is the job of the inbox.
CREATE TABLE IF NOT EXISTS received (
  place    INTEGER PRIMARY KEY AUTOINCREMENT,
  id       INTEGER NOT NULL, -- order id
  customer TEXT NOT NULL,
  number   INTEGER NOT NULL,
  cents    INTEGER NOT NULL
);
-- One row per packed order, inserted in the transaction that acks its job.
CREATE TABLE IF NOT EXISTS packed (
  id INTEGER NOT NULL
);
-- One row per message that was delivered again and ignored.
CREATE TABLE IF NOT EXISTS repeated (
  id TEXT NOT NULL -- message id
);
