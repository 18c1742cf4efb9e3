package relays

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/rows"
)

// relayInvariants lists rules that hold in a relay's tables between transactions. Each query returns the violations
// as text. Violations that another program can cause with a plain INSERT are grouped by queue, because there may be a
// million of them.
var relayInvariants = []struct{ rule, query string }{
	{"a queue has 1, 2, 4, 8, 16, 32 or 64 partitions, and a row for each",
		`SELECT 'queue ' || name FROM _honkerx_relay_queues AS q WHERE partitions NOT IN (1, 2, 4, 8, 16, 32, 64)
  OR partitions <> (SELECT count(*) FROM _honkerx_relay_partitions WHERE queue = q.name)`},
	{"a partition belongs to a registered queue and is below its number of partitions",
		`SELECT 'partition ' || queue || '/' || partition FROM _honkerx_relay_partitions AS p` + withoutPartition},
	{"the counters of a partition are non-negative integers, and processed is at most cursor",
		`SELECT 'partition ' || queue || '/' || partition FROM _honkerx_relay_partitions
WHERE typeof(processed) <> 'integer' OR processed < 0 OR typeof(cursor) <> 'integer' OR cursor < processed
  OR typeof(epoch) <> 'integer' OR epoch < 0 OR typeof(attempts) <> 'integer' OR attempts < 0
  OR typeof(retry_at_ms) <> 'integer' OR retry_at_ms < 0`},
	{"the cursor of a partition is not above the highest message id",
		`SELECT 'partition ' || queue || '/' || partition FROM _honkerx_relay_partitions
WHERE cursor > ifnull((SELECT seq FROM sqlite_sequence WHERE name = '_honkerx_relay_messages'), 0)`},
	{"a lease has both an owner and an end, or neither",
		`SELECT 'partition ' || queue || '/' || partition FROM _honkerx_relay_partitions
WHERE typeof(lease_until_ms) <> 'integer' OR lease_until_ms < 0 OR (owner = '') <> (lease_until_ms = 0)`},
	{"a message belongs to a partition of a registered queue; otherwise it is never delivered",
		`SELECT count(*) || ' in ' || queue || '/' || partition FROM _honkerx_relay_messages AS p` + withoutPartition + ` GROUP BY queue, partition`},
	{"a message is above the cursor of its partition: another program has inserted these with lower ids, so they count as finished and will be deleted",
		`SELECT count(*) || ' in ' || m.queue || '/' || m.partition FROM _honkerx_relay_partitions AS p CROSS JOIN _honkerx_relay_messages AS m
  ON m.queue = p.queue AND m.partition = p.partition AND m.id <= p.cursor GROUP BY m.queue, m.partition`},
	{"a type is 1 to 1024 printable ASCII characters",
		`SELECT count(*) || ' in ' || queue FROM _honkerx_relay_messages WHERE typeof(type) <> 'text'
  OR length(CAST(type AS BLOB)) NOT BETWEEN 1 AND 1024 OR instr(type, char(0)) OR type GLOB '*[^ -~]*' GROUP BY queue`},
	{"a message waits or is dead, not both",
		`SELECT 'message ' || id FROM _honkerx_relay_dead JOIN _honkerx_relay_messages USING (id)`},
	{"a dead letter belongs to a partition of a registered queue",
		`SELECT 'dead letter ' || id FROM _honkerx_relay_dead AS p` + withoutPartition},
	{"a dead letter has a unique seq among the finished messages of its partition",
		`SELECT 'dead letter ' || id FROM _honkerx_relay_dead AS d WHERE typeof(seq) <> 'integer' OR seq < 1
  OR seq > (SELECT processed FROM _honkerx_relay_partitions WHERE queue = d.queue AND partition = d.partition)
UNION ALL
SELECT 'dead letter ' || max(id) FROM _honkerx_relay_dead GROUP BY queue, partition, seq HAVING count(*) > 1`},
	{"a dead letter is pending, replaying, resolved or discarded",
		`SELECT 'dead letter ' || id FROM _honkerx_relay_dead WHERE state NOT IN ('pending', 'replaying', 'resolved', 'discarded')`},
	{"only a replaying dead letter has a holder, and its hold has an end",
		`SELECT 'dead letter ' || id FROM _honkerx_relay_dead WHERE (state = 'replaying') <> (holder <> '')
  OR typeof(hold_until_ms) <> 'integer' OR hold_until_ms < 0 OR state <> 'pending' AND hold_until_ms = 0`},
	{"a dead letter has a time of death and a number of attempts",
		`SELECT 'dead letter ' || id FROM _honkerx_relay_dead
WHERE typeof(attempts) <> 'integer' OR attempts < 0 OR typeof(died_ms) <> 'integer' OR typeof(created_ms) <> 'integer'`},
}

// withoutPartition selects rows whose partition does not exist in their queue.
const withoutPartition = ` WHERE typeof(partition) <> 'integer' OR partition < 0
  OR NOT EXISTS (SELECT 1 FROM _honkerx_relay_queues AS q WHERE q.name = p.queue AND p.partition < q.partitions)`

const sqlRelayTables = `SELECT name FROM sqlite_schema WHERE type = 'table' AND name GLOB '_honkerx_relay_*' ORDER BY name`

// relayTable matches a relay's tables and captures the family. Tables with other names do not belong
// to honker.
var relayTable = regexp.MustCompile(`^_honkerx_relay_(?:([a-z][a-z0-9_]*)_)?(queues|messages|partitions|dead)$`)

// relayFamilies returns each relay family's tables in the file. The key "" is the unnamed family.
func relayFamilies(ctx context.Context, q row.Querier) (map[string][]string, error) {
	names, err := rows.Texts(ctx, q, sqlRelayTables)
	families := make(map[string][]string)
	for _, name := range names {
		if m := relayTable.FindStringSubmatch(name); m != nil {
			families[m[1]] = append(families[m[1]], m[2])
		}
	}
	return families, err
}

// completeFamilies returns the families with a complete set of tables, sorted. The unnamed family is
// "".
func completeFamilies(ctx context.Context, q row.Querier) (all []string, err error) {
	families, err := relayFamilies(ctx, q)
	for _, family := range slices.Sorted(maps.Keys(families)) {
		if len(families[family]) == 4 {
			all = append(all, family)
		}
	}
	return all, err
}

// Check returns the violations in all families' relay tables.
func Check(ctx context.Context, q row.Querier) (broken []string, err error) {
	families, err := relayFamilies(ctx, q)
	if err != nil {
		return nil, err
	}
	for _, family := range slices.Sorted(maps.Keys(families)) {
		lines, err := Relays{Family: family}.check(ctx, q, families[family])
		if err != nil {
			return nil, err
		}
		broken = append(broken, lines...)
	}
	return broken, nil
}

// check returns the violations in a family's tables. tables lists the family's existing tables.
func (r Relays) check(ctx context.Context, q row.Querier, tables []string) (broken []string, err error) {
	name := strings.TrimSpace("relay " + r.Family)
	if len(tables) < 4 {
		return []string{fmt.Sprintf("%s: some of its four tables are missing; found only %s", name, strings.Join(tables, ", "))}, nil
	}
	for _, i := range relayInvariants {
		found, err := rows.Texts(ctx, q, r.named(i.query))
		if err != nil {
			return nil, err
		}
		for _, what := range found {
			broken = append(broken, fmt.Sprintf("%s: %s: %s", name, i.rule, what))
		}
	}
	return broken, nil
}

// Rules returns the rules for a relay's tables.
func Rules() (rules []string) {
	for _, i := range relayInvariants {
		rules = append(rules, i.rule)
	}
	return rules
}
