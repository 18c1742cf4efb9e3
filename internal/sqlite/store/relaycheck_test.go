package store_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/relays"
	"github.com/honker-go/honker/internal/sqlite/store/schema"
)

// relayTables creates a family's tables in a transaction, with the queue a, which has two partitions. Partition 0 has
// finished messages 1 and 2, of which 2 is dead; message 3 is waiting.
func relayTables(t *testing.T, q row.Querier, family string) {
	t.Helper()
	r := relays.Relays{Family: family}
	_, _, err := r.Register(ctx, q, "a", 2, time.UnixMilli(1))
	require.NoError(t, err)
	_, err = r.Send(ctx, q, "a", make([]row.RelayMessage, 0), time.UnixMilli(1))
	require.NoError(t, err)
	for _, statement := range []string{
		`INSERT INTO _honkerx_relay_messages (id, queue, payload) VALUES (3, 'a', 'x')`,
		`UPDATE _honkerx_relay_partitions SET processed = 2, cursor = 2 WHERE partition = 0`,
		`INSERT INTO _honkerx_relay_dead (id, queue, partition, seq, type, payload, created_ms, attempts, died_ms)
			VALUES (2, 'a', 0, 2, 'text/plain', '', 1, 1, 1)`,
	} {
		exec(t, q, ofFamily(statement, family))
	}
}

func ofFamily(statement, family string) string {
	if family != "" {
		statement = strings.ReplaceAll(statement, "_honkerx_relay_", "_honkerx_relay_"+family+"_")
	}
	return statement
}

// breakages lists statements that corrupt a file, along with the report expected from Check.
var breakages = []struct{ statement, says string }{
	{`UPDATE _honkerx_relay_queues SET partitions = 3`, "1, 2, 4, 8, 16, 32 or 64 partitions, and a row for each: queue a"},
	{`DELETE FROM _honkerx_relay_partitions WHERE partition = 1`, "a row for each: queue a"},
	{`INSERT INTO _honkerx_relay_queues VALUES ('b', 1, 1)`, "a row for each: queue b"},
	{`INSERT INTO _honkerx_relay_partitions (queue, partition) VALUES ('b', 0)`, "a partition belongs to a registered queue and is below its number of partitions: partition b/0"},
	{`UPDATE _honkerx_relay_partitions SET processed = -1`, "processed is at most cursor: partition a/0"},
	{`UPDATE _honkerx_relay_partitions SET processed = 9`, "processed is at most cursor: partition a/1"},
	{`UPDATE _honkerx_relay_partitions SET attempts = 'many'`, "processed is at most cursor: partition a/0"},
	{`UPDATE _honkerx_relay_partitions SET cursor = 4 WHERE partition = 1`, "the cursor of a partition is not above the highest message id: partition a/1"},
	{`UPDATE _honkerx_relay_partitions SET owner = 'me' WHERE partition = 0`, "a lease has both an owner and an end, or neither: partition a/0"},
	{`UPDATE _honkerx_relay_partitions SET lease_until_ms = 5 WHERE partition = 0`, "a lease has both an owner and an end, or neither: partition a/0"},
	{`INSERT INTO _honkerx_relay_messages (queue, payload) VALUES ('b', ''), ('b', '')`, "otherwise it is never delivered: 2 in b/0"},
	{`INSERT INTO _honkerx_relay_messages (queue, partition, payload) VALUES ('a', 2, '')`, "otherwise it is never delivered: 1 in a/2"},
	{`INSERT INTO _honkerx_relay_messages (queue, partition, payload) VALUES ('a', -1, '')`, "otherwise it is never delivered: 1 in a/-1"},
	{`INSERT INTO _honkerx_relay_messages (queue, partition, payload) VALUES ('a', 0.5, '')`, "otherwise it is never delivered: 1 in a/0.5"},
	{`INSERT INTO _honkerx_relay_messages (queue, partition, payload) VALUES ('a', 'zero', '')`, "otherwise it is never delivered: 1 in a/zero"},
	{`INSERT INTO _honkerx_relay_messages (id, queue, payload) VALUES (1, 'a', '')`, "they count as finished and will be deleted: 1 in a/0"},
	{`UPDATE _honkerx_relay_messages SET type = ''`, "a type is 1 to 1024 printable ASCII characters: 1 in a"},
	{`UPDATE _honkerx_relay_messages SET type = 'tüpe'`, "a type is 1 to 1024 printable ASCII characters: 1 in a"},
	{`UPDATE _honkerx_relay_messages SET type = 'a' || char(0) || 'b'`, "a type is 1 to 1024 printable ASCII characters: 1 in a"},
	{`UPDATE _honkerx_relay_messages SET type = 'a' || char(10)`, "a type is 1 to 1024 printable ASCII characters: 1 in a"},
	{`UPDATE _honkerx_relay_messages SET type = hex(zeroblob(513))`, "a type is 1 to 1024 printable ASCII characters: 1 in a"},
	{`UPDATE _honkerx_relay_messages SET type = x'41'`, "a type is 1 to 1024 printable ASCII characters: 1 in a"},
	{`UPDATE _honkerx_relay_dead SET id = 3`, "a message waits or is dead, not both: message 3"},
	{`UPDATE _honkerx_relay_dead SET queue = 'b'`, "a dead letter belongs to a partition of a registered queue: dead letter 2"},
	{`UPDATE _honkerx_relay_dead SET partition = 2`, "a dead letter belongs to a partition of a registered queue: dead letter 2"},
	{`UPDATE _honkerx_relay_dead SET seq = 3`, "a dead letter has a unique seq among the finished messages of its partition: dead letter 2"},
	{`UPDATE _honkerx_relay_dead SET seq = 0`, "a dead letter has a unique seq among the finished messages of its partition: dead letter 2"},
	{`INSERT INTO _honkerx_relay_dead SELECT 1, queue, partition, seq, type, payload, 1, 1, '', 1, state, '', 0, key FROM _honkerx_relay_dead`,
		"a dead letter has a unique seq among the finished messages of its partition: dead letter 2"},
	{`UPDATE _honkerx_relay_dead SET state = 'gone', hold_until_ms = 1`, "a dead letter is pending, replaying, resolved or discarded: dead letter 2"},
	{`UPDATE _honkerx_relay_dead SET state = 'replaying', hold_until_ms = 1`, "only a replaying dead letter has a holder, and its hold has an end: dead letter 2"},
	{`UPDATE _honkerx_relay_dead SET state = 'replaying', holder = 'me'`, "only a replaying dead letter has a holder, and its hold has an end: dead letter 2"},
	{`UPDATE _honkerx_relay_dead SET holder = 'me'`, "only a replaying dead letter has a holder, and its hold has an end: dead letter 2"},
	{`UPDATE _honkerx_relay_dead SET state = 'resolved'`, "only a replaying dead letter has a holder, and its hold has an end: dead letter 2"},
	{`UPDATE _honkerx_relay_dead SET attempts = -1`, "a dead letter has a time of death and a number of attempts: dead letter 2"},
	{`UPDATE _honkerx_relay_dead SET died_ms = 'soon'`, "a dead letter has a time of death and a number of attempts: dead letter 2"},
	{`DROP TABLE _honkerx_relay_dead`, "some of its four tables are missing; found only messages, partitions, queues"},
}

// Each rule for relay tables reports a file that violates it, in any family.
func TestCheck_BrokenRelay(t *testing.T) {
	db := openFresh(t)
	for _, family := range []string{"", "billing", "a_dead"} {
		for _, b := range breakages {
			tx := begin(t, db)
			relayTables(t, tx, family)
			broken, err := schema.Check(ctx, tx)
			require.NoError(t, err)
			require.Empty(t, broken, "before")

			exec(t, tx, ofFamily(b.statement, family))
			broken, err = schema.Check(ctx, tx)
			require.NoError(t, err, b.statement)
			require.NotEmpty(t, broken, b.statement)
			require.Contains(t, fmt.Sprint(broken), strings.TrimSpace("relay "+family)+": ", b.statement)
			require.Contains(t, strings.Join(broken, "\n")+"\n", b.says+"\n", b.statement)
			require.NoError(t, tx.Rollback())
		}
	}
}

// The breakages together violate every rule.
func TestCheck_BrokenRelay_EachRule(t *testing.T) {
	for _, rule := range relays.Rules() {
		found := false
		for _, b := range breakages {
			text, _, _ := strings.Cut(b.says, ": ")
			found = found || strings.Contains(rule, text) || strings.HasSuffix(rule, text)
		}
		require.True(t, found, rule)
	}
}

// Check distinguishes families and ignores tables whose names merely resemble ours.
func TestCheck_Relay_Families(t *testing.T) {
	tx := begin(t, openFresh(t))
	relayTables(t, tx, "")
	relayTables(t, tx, "billing")
	exec(t, tx, `CREATE TABLE "_honkerx_relay_x; DROP TABLE y_dead" (id)`)
	exec(t, tx, `CREATE TABLE _honkerx_relay_notes (id)`)
	exec(t, tx, `UPDATE _honkerx_relay_billing_dead SET state = 'gone', hold_until_ms = 1`)
	broken, err := schema.Check(context.Background(), tx)
	require.NoError(t, err)
	require.Equal(t, []string{"relay billing: a dead letter is pending, replaying, resolved or discarded: dead letter 2"}, broken)
}
