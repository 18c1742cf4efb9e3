//go:build honkerpg && unix

package testkit

import "maps"

func init() {
	maps.Copy(statements, map[string]string{
		CountRelays:    `SELECT count(*) FROM relay_queue`,
		ListMessages:   `SELECT id, queue, partition, type, convert_from(payload, 'UTF8') FROM relay_message ORDER BY id`,
		RelayBegun:     `SELECT EXISTS (SELECT FROM relay_queue)`,
		CountMessages:  `SELECT (SELECT count(*) FROM relay_message) + (SELECT count(*) FROM relay_pending)`,
		CountHeld:      `SELECT count(*) FROM relay_partition WHERE owner <> ''`,
		ListProcessed:  `SELECT queue, partition, processed FROM relay_partition`,
		DeadNumbers:    `SELECT convert_from(payload, 'UTF8')::bigint FROM relay_dead`,
		SetPartitions:  `UPDATE relay_queue SET partitions = $1 WHERE name = $2`,
		GrowDead:       `UPDATE relay_dead SET payload = convert_to(repeat('x', 300000), 'UTF8') WHERE id % 10 = 0`,
		DeleteDead:     `DELETE FROM relay_dead WHERE id > 1`,
		RefuseDead:     triggerOn("relay_dead", "DELETE", `IF OLD.id = 3 THEN RAISE 'no'; END IF; RETURN OLD;`),
		KeepDead:       triggerOn("relay_dead", "DELETE", `IF OLD.id = 3 THEN RETURN NULL; END IF; RETURN OLD;`),
		deleteMessages: `DELETE FROM relay_message`,
		setMessageID:   `SELECT setval(pg_get_serial_sequence('relay_message', 'id'), $1::bigint)`,
		setProcessed:   `UPDATE relay_partition SET processed = $1, cursor = $1 WHERE queue = $2`,
		addDead: `INSERT INTO relay_dead (id, family, queue, partition, seq, type, payload, created_at, attempts, last_error, died_at, key)
SELECT n, '', $2, n % 2, (n + 1) / 2, CASE WHEN n % 3 = 0 THEN 'text/plain' ELSE 'application/json' END, convert_to('letter ' || n, 'UTF8'),
  to_timestamp(946684800), 1, 'cause ' || n, to_timestamp(946684800 + n), '' FROM generate_series(1, $1::bigint) n`,
		CountSent:     `SELECT (SELECT count(*) FROM sent_job) + (SELECT count(*) FROM actor)`,
		AddActor:      `INSERT INTO actor (key, owner, value, expires_at) VALUES ($1, 'gone', '{}', to_timestamp($2::bigint / 1000.0))`,
		ExpireActors:  `UPDATE actor SET expires_at = to_timestamp($1::bigint / 1000.0) WHERE key LIKE $2`,
		StealActors:   `UPDATE actor SET owner = 'another', expires_at = to_timestamp($1::bigint / 1000.0)`,
		SweepActors:   `DELETE FROM actor`,
		RefuseActors:  triggerOn("actor", "INSERT", `RAISE 'no';`),
		AllowActors:   `DROP TRIGGER refuse ON actor`,
		CountReceived: `SELECT count(*) FROM received`,
		CountInboxes:  `SELECT count(*) FROM received`,
		SignalRun:     `SELECT signal($1, $2, $3, $4::jsonb)`,
		DropReceived:  triggerOn("received", "INSERT", `RETURN NULL;`),
	})
}

// triggerOn returns the statements of a trigger with the given body.
func triggerOn(table, event, body string) string {
	return `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN ` + body + ` END $$;
CREATE TRIGGER refuse BEFORE ` + event + ` ON ` + table + ` FOR EACH ROW EXECUTE FUNCTION refuse()`
}
