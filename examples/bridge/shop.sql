-- One row per order, inserted in the transaction that also sends it to the warehouse.
CREATE TABLE IF NOT EXISTS orders (
  id       INTEGER PRIMARY KEY,
  customer TEXT NOT NULL,
  number   INTEGER NOT NULL, -- 1, 2, 3 … for each customer
  cents    INTEGER NOT NULL
);
