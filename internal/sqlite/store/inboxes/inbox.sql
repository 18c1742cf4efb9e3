-- The table of package inbox, made by the first message that is received.
--
-- Every statement may run again on a file that has it already. Times are unix milliseconds.

-- The messages that were received. A message with the source and id of a row has no second
-- effect. Maintain deletes a row after expires_ms.
CREATE TABLE IF NOT EXISTS _honkerx_inbox_received (
  source TEXT NOT NULL,
  id TEXT NOT NULL,
  received_ms INTEGER NOT NULL,
  expires_ms INTEGER NOT NULL,
  PRIMARY KEY (source, id)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS _honkerx_inbox_expiry
  ON _honkerx_inbox_received(expires_ms);
