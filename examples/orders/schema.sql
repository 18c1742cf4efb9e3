-- The tables of the service, in the same file as those of honker. Constraints that an order may
-- violate are named after the reason for its refusal.

CREATE TABLE IF NOT EXISTS orders (
  id TEXT PRIMARY KEY,
  line INTEGER NOT NULL, -- in the input; the same line read again is not a duplicate
  job INTEGER NOT NULL,  -- id of the job that prints the receipt
  customer TEXT NOT NULL,
  email TEXT NOT NULL,
  currency TEXT NOT NULL
    CONSTRAINT "unknown currency" CHECK (currency IN ('EUR', 'GBP', 'USD')),
  total_cents INTEGER NOT NULL,
  placed_at TEXT NOT NULL
) STRICT;

CREATE TABLE IF NOT EXISTS order_items (
  order_id TEXT NOT NULL REFERENCES orders(id),
  position INTEGER NOT NULL,
  sku TEXT NOT NULL,
  qty INTEGER NOT NULL
    CONSTRAINT "quantity not positive" CHECK (qty > 0),
  price_cents INTEGER NOT NULL,
  PRIMARY KEY (order_id, position)
) STRICT, WITHOUT ROWID;
