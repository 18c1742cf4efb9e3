-- The ids of messages that package inbox has received.
CREATE TABLE honker.received (
  source text COLLATE "C" NOT NULL,
  id text COLLATE "C" NOT NULL,
  received_at timestamptz NOT NULL,
  expires_at timestamptz NOT NULL,
  PRIMARY KEY (source, id)
);
CREATE INDEX received_expires ON honker.received (expires_at);
