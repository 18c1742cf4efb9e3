-- One row for each job that has ended, in the transaction that also ends it.
CREATE TABLE done (
  scenario TEXT NOT NULL,
  number   INTEGER NOT NULL,
  process  TEXT NOT NULL
);
