package testkit

// Statements on the tables of packages relay, dispatch, flow and inbox, whose counterparts are in postgres_relay.go. Times are
// Unix milliseconds.
const (
	// CountRelays selects a number that is 0 if no relay queue was used.
	CountRelays = `SELECT count(*) FROM sqlite_schema WHERE name LIKE '%relay%'`

	// ListMessages selects the messages of the unnamed family, in their order.
	ListMessages = `SELECT id, queue, partition, type, CAST(payload AS TEXT) FROM _honkerx_relay_messages ORDER BY id`

	// RelayBegun selects whether a relay queue was used. CountMessages selects the number of messages of the unnamed family that
	// are not finished, CountHeld that of its partitions with an owner.
	RelayBegun    = `SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE name = '_honkerx_relay_messages')`
	CountMessages = `SELECT count(*) FROM _honkerx_relay_messages`
	CountHeld     = `SELECT count(*) FROM _honkerx_relay_partitions WHERE owner <> ''`

	// ListProcessed selects the queue, the number and the finished messages of each partition, DeadNumbers the numbers that the
	// dead letters carry.
	ListProcessed = `SELECT queue, partition, processed FROM _honkerx_relay_partitions`
	DeadNumbers   = `SELECT CAST(payload AS INTEGER) FROM _honkerx_relay_dead`

	// InsertMessage sends a message to queue "orders" without package relay. It is for files.
	InsertMessage = `INSERT INTO _honkerx_relay_messages (queue, payload) VALUES ('orders', '4')`

	// SetPartitions sets the number of partitions of a queue, without the partitions.
	SetPartitions = `UPDATE _honkerx_relay_queues SET partitions = $1 WHERE name = $2`

	// GrowDead gives a tenth of the dead letters a payload of 300,000 bytes.
	GrowDead = `UPDATE _honkerx_relay_dead SET payload = zeroblob(300000) WHERE id % 10 = 0`

	// DeleteDead deletes the dead letters after the first.
	DeleteDead = `DELETE FROM _honkerx_relay_dead WHERE id > 1`

	// RefuseDead and KeepDead create triggers on the deletion of dead letter 3. RefuseDead's fails, KeepDead's skips the row.
	RefuseDead = `CREATE TRIGGER no BEFORE DELETE ON _honkerx_relay_dead WHEN OLD.id = 3 BEGIN SELECT RAISE(ABORT, 'no'); END`
	KeepDead   = `CREATE TRIGGER no BEFORE DELETE ON _honkerx_relay_dead WHEN OLD.id = 3 BEGIN SELECT RAISE(IGNORE); END`

	deleteMessages = `DELETE FROM _honkerx_relay_messages`
	setMessageID   = `UPDATE sqlite_sequence SET seq = $1 WHERE name = '_honkerx_relay_messages'`
	setProcessed   = `UPDATE _honkerx_relay_partitions SET processed = $1, cursor = $1 WHERE queue = $2`
	addDead        = `WITH RECURSIVE some(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM some WHERE n < $1) INSERT INTO _honkerx_relay_dead
  (id, queue, partition, seq, type, payload, created_ms, attempts, last_error, died_ms)
SELECT n, $2, n % 2, (n + 1) / 2, iif(n % 3, 'application/json', 'text/plain'), 'letter ' || n, 946684800000, 1, 'cause ' || n,
  946684800000 + 1000 * n FROM some`

	// CountSent selects a number that is 0 if package dispatch was not used.
	CountSent = `SELECT count(*) FROM sqlite_schema WHERE name GLOB '_honkerx_dispatch_*'`

	// AddActor adds the presence of an actor, whose key and expiry are the parameters, for the owner "gone".
	AddActor = `INSERT INTO _honkerx_dispatch_presence VALUES ($1, 'gone', '{}', $2)`

	// ExpireActors sets the expiry of all actors whose keys are LIKE the second parameter.
	ExpireActors = `UPDATE _honkerx_dispatch_presence SET expires_ms = $1 WHERE key LIKE $2`

	// StealActors gives the names of all actors to another owner, until the parameter.
	StealActors = `UPDATE _honkerx_dispatch_presence SET owner = 'another', expires_ms = $1`

	// SweepActors deletes the presence of all actors.
	SweepActors = `DELETE FROM _honkerx_dispatch_presence`

	// RefuseActors makes the registration of actors fail, until AllowActors.
	RefuseActors = `CREATE TRIGGER refuse BEFORE INSERT ON _honkerx_dispatch_presence BEGIN SELECT RAISE(ABORT, 'no'); END`
	AllowActors  = `DROP TRIGGER refuse`

	// CountReceived selects the number of message IDs that package inbox has recorded, if it was used.
	CountReceived = `SELECT count(*) FROM _honkerx_inbox_received`

	// CountInboxes selects 0 if there is no table of received messages.
	CountInboxes = `SELECT count(*) FROM sqlite_schema WHERE name = '_honkerx_inbox_received'`

	// SignalRun sends a signal, by its parameters flow, ID, name and value.
	SignalRun = `INSERT INTO _honkerx_flow_signals (flow, id, name, value) VALUES ($1, $2, $3, $4)`

	// DropReceived creates a trigger that skips new message IDs.
	DropReceived = `CREATE TRIGGER dropped BEFORE INSERT ON _honkerx_inbox_received BEGIN SELECT RAISE(IGNORE); END`
)
