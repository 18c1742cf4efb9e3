package store

// LegacyMessages creates the triggers that make the jobs and events of a connection send the
// messages of honker up to 0.2.4: the word new, which is not JSON, on a channel of the queue or
// topic. These messages woke older workers. Newer workers watch for commits, as do those of 0.2.4.
//
// The triggers are temporary. They affect neither other connections nor the file. A job that is put
// back sends a message only if its claim still held: a job whose claim has lapsed is taken by the
// same claim that puts it back.
var LegacyMessages = []string{
	`CREATE TEMP TRIGGER IF NOT EXISTS _honkerx_legacy_enqueued AFTER INSERT ON main._honker_live
BEGIN
  INSERT INTO _honker_notifications (channel, payload, created_at) VALUES ('honker:' || NEW.queue, 'new', NEW.created_at);
END`,
	`CREATE TEMP TRIGGER IF NOT EXISTS _honkerx_legacy_retried AFTER UPDATE OF state ON main._honker_live
WHEN OLD.state = 'processing' AND NEW.state = 'pending' AND OLD.claim_expires_at * 1000 >= ` + clockOfSQLite + `
BEGIN
  INSERT INTO _honker_notifications (channel, payload) VALUES ('honker:' || NEW.queue, 'new');
END`,
	`CREATE TEMP TRIGGER IF NOT EXISTS _honkerx_legacy_published AFTER INSERT ON main._honker_stream
BEGIN
  INSERT INTO _honker_notifications (channel, payload, created_at) VALUES ('honker:stream:' || NEW.topic, 'new', NEW.created_at);
END`,
}
