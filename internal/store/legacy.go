package store

// LegacyMessages make the triggers of one connection by which its jobs and events send the messages that honker up to
// 0.2.4 sends: the word new, which is no JSON, on a channel of the queue or topic. Such messages woke its workers. Newer
// ones look for commits, as those of 0.2.4 do.
//
// The triggers are temporary, so they bind neither other connections nor the file. A job that is put back
// counts if its claim still held: one that has lapsed is taken by the claim that puts it back.
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
