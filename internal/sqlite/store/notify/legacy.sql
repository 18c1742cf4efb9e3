-- See LegacyMessages. A job that is put back sends a message only if its claim still held: a job whose
-- claim has lapsed is taken by the same claim that puts it back. julianday is used because
-- unixepoch('subsec') requires SQLite 3.42.

CREATE TEMP TRIGGER IF NOT EXISTS _honkerx_legacy_enqueued AFTER INSERT ON main._honker_live
BEGIN
  INSERT INTO _honker_notifications (channel, payload, created_at) VALUES ('honker:' || NEW.queue, 'new', NEW.created_at);
END;

CREATE TEMP TRIGGER IF NOT EXISTS _honkerx_legacy_retried AFTER UPDATE OF state ON main._honker_live
WHEN OLD.state = 'processing' AND NEW.state = 'pending' AND OLD.claim_expires_at * 1000 >= CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)
BEGIN
  INSERT INTO _honker_notifications (channel, payload) VALUES ('honker:' || NEW.queue, 'new');
END;

CREATE TEMP TRIGGER IF NOT EXISTS _honkerx_legacy_published AFTER INSERT ON main._honker_stream
BEGIN
  INSERT INTO _honker_notifications (channel, payload, created_at) VALUES ('honker:stream:' || NEW.topic, 'new', NEW.created_at);
END;
