-- The service's own tables, beside honker's in the same file. A constraint that an
-- order may break has the name of the reason for its refusal.

CREATE TABLE IF NOT EXISTS orders (
  id TEXT PRIMARY KEY,
  line INTEGER NOT NULL, -- of the input: an order met again there is no duplicate
  job INTEGER NOT NULL,  -- its receipt's
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
