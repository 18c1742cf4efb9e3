-- The tables of the service in PostgreSQL, as schema.sql has them for a file. Processes that start at the same time
-- wait for each other, because CREATE TABLE IF NOT EXISTS fails while another transaction creates the table.
SELECT pg_advisory_xact_lock(72616768);

CREATE TABLE IF NOT EXISTS orders (
  id text PRIMARY KEY,
  line int NOT NULL,     -- in the input; the same line read again is not a duplicate
  job bigint NOT NULL,   -- id of the job that prints the receipt
  customer text NOT NULL,
  email text NOT NULL,
  currency text NOT NULL
    CONSTRAINT "unknown currency" CHECK (currency IN ('EUR', 'GBP', 'USD')),
  total_cents int NOT NULL,
  placed_at timestamptz NOT NULL
);

CREATE TABLE IF NOT EXISTS order_items (
  order_id text NOT NULL REFERENCES orders(id),
  position int NOT NULL,
  sku text NOT NULL,
  qty int NOT NULL
    CONSTRAINT "quantity not positive" CHECK (qty > 0),
  price_cents int NOT NULL,
  PRIMARY KEY (order_id, position)
);
