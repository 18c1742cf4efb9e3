// Package inboxes contains the statements for messages received by an inbox.
package inboxes

import (
	"context"
	_ "embed"
	"fmt"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/rows"
)

//go:embed inbox.sql
var inboxDDL string

// Inboxes contains the statements for _honkerx_inbox_received.
type Inboxes struct{}

const sqlHasInbox = `SELECT 1 FROM sqlite_schema WHERE type = 'index' AND name = '_honkerx_inbox_expiry'`

// exists reports whether the file has the table. It reads the schema.
func (Inboxes) exists(ctx context.Context, q row.Querier) (found bool, err error) {
	var x int
	return rows.One(ctx, q, sqlHasInbox, nil, &x)
}

// bootstrap creates the table in the caller's transaction, unless it exists. It takes the write lock first, because a
// deferred transaction can't write after a read if another writer has committed in between.
func (i Inboxes) bootstrap(ctx context.Context, q row.Querier) error {
	if err := rows.TakeWriteLock(ctx, q); err != nil {
		return err
	}
	if found, err := i.exists(ctx, q); err != nil || found {
		return err
	}
	return rows.ExecAll(ctx, q, rows.SplitDDL(inboxDDL))
}

// These statements use the primary key.
const (
	sqlReceive = `INSERT INTO _honkerx_inbox_received (source, id, received_ms, expires_ms) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (source, id) DO NOTHING`

	sqlReceived = `SELECT 1 FROM _honkerx_inbox_received WHERE source = ?1 AND id = ?2`
)

// Receive records a message until expires, which is rounded up to milliseconds, and creates the table if it is
// missing. first is false if the message had already been recorded. Receive returns ErrNotInserted if the message was
// not stored.
func (i Inboxes) Receive(ctx context.Context, q row.Querier, source, id string, now, expires time.Time) (first bool, err error) {
	if err := i.bootstrap(ctx, q); err != nil {
		return false, err
	}
	n, err := rows.Affected(ctx, q, sqlReceive, source, id, rows.MilliOf(now), rows.MilliUp(expires))
	if err != nil || n > 0 {
		return n > 0, err
	}
	// One of the application's triggers may have dropped the insert.
	var x int
	if found, err := rows.One(ctx, q, sqlReceived, []any{source, id}, &x); err != nil || found {
		return false, err
	}
	return false, row.ErrNotInserted
}

// These statements use the index on expiry.
const (
	sqlReceivedOver = `SELECT EXISTS (SELECT 1 FROM _honkerx_inbox_received WHERE expires_ms <= ?1)`

	sqlDropReceived = `DELETE FROM _honkerx_inbox_received WHERE (source, id) IN (
  SELECT source, id FROM _honkerx_inbox_received WHERE expires_ms <= ?1 ORDER BY expires_ms LIMIT ?2 + 0)`
)

// findReceivedOver looks for messages past their retention.
func findReceivedOver(ctx context.Context, q row.Querier, _ row.Part, at time.Time, _ int) ([]int64, error) {
	if there, err := (Inboxes{}).exists(ctx, q); err != nil || !there {
		return nil, err
	}
	some := false
	_, err := rows.One(ctx, q, sqlReceivedOver, []any{at.UnixMilli()}, &some)
	return rows.Work(some, err)
}

// dropReceivedOver deletes up to limit messages past their retention.
func dropReceivedOver(ctx context.Context, q row.Querier, _ row.Part, _ []int64, at time.Time, limit int) (row.Swept, error) {
	n, err := rows.Affected(ctx, q, sqlDropReceived, at.UnixMilli(), limit)
	return row.Swept{N: n, More: n == limit}, err
}

// inboxInvariants hold between any two transactions in the inbox table.
var inboxInvariants = []struct{ rule, query string }{
	{"a received message has a source, an id, and an expiry after its receipt",
		`SELECT 'message ' || quote(id) || ' of ' || quote(source) FROM _honkerx_inbox_received WHERE typeof(source) <> 'text' OR source = ''
  OR typeof(id) <> 'text' OR id = '' OR typeof(received_ms) <> 'integer' OR typeof(expires_ms) <> 'integer' OR expires_ms < received_ms`},
}

// Check returns the violations in the inbox table, if it exists.
func Check(ctx context.Context, q row.Querier) (broken []string, err error) {
	if there, err := (Inboxes{}).exists(ctx, q); err != nil || !there {
		return nil, err
	}
	for _, i := range inboxInvariants {
		found, err := rows.Texts(ctx, q, i.query)
		if err != nil {
			return nil, err
		}
		for _, row := range found {
			broken = append(broken, fmt.Sprintf("inbox: %s: %s", i.rule, row))
		}
	}
	return broken, nil
}

// SweepReceived deletes IDs past their retention.
var SweepReceived = engine.Sweep{Find: findReceivedOver, Take: dropReceivedOver}
