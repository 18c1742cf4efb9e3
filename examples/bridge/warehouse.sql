-- One row for each order that has arrived. Nothing in the table keeps an order from arriving twice:
-- that is up to the inbox.
CREATE TABLE IF NOT EXISTS received (
  place    INTEGER PRIMARY KEY AUTOINCREMENT,
  id       INTEGER NOT NULL, -- of the order
  customer TEXT NOT NULL,
  number   INTEGER NOT NULL,
  cents    INTEGER NOT NULL
);
-- One row for each order that was packed, in the transaction that ends its job.
CREATE TABLE IF NOT EXISTS packed (
  id INTEGER NOT NULL
);
-- One row for each message that was delivered again, and had no effect.
CREATE TABLE IF NOT EXISTS repeated (
  id TEXT NOT NULL -- of the message
);
