-- One row per finished job, inserted in the transaction that finishes it.
CREATE TABLE done (
  scenario TEXT NOT NULL,
  number   INTEGER NOT NULL,
  process  TEXT NOT NULL
);
