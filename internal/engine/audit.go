package engine

import (
	"context"
	"slices"
	"time"

	"github.com/honker-go/honker/internal/row"
)

// Audit is a verb's row in the audit log. It is written in the same transactions as the verb's changes. A nil Audit
// writes nothing.
type Audit struct {
	store AuditStore
	row   row.AuditRow
}

// NewAudit returns the audit row for a verb called with ctx. filter is a JSON description of the
// objects that the verb changes.
func (e *Engine) NewAudit(ctx context.Context, verb, filter string) *Audit {
	return &Audit{e.Stores.Audits, row.AuditRow{Who: Actor(ctx), Remote: remote(ctx), Verb: verb, Filter: filter}}
}

// AuditActor is NewAudit for a verb that is used by applications as well as operators. It returns
// nil if ctx names no actor. For target, see AuditTarget.
func (e *Engine) AuditActor(ctx context.Context, verb string, target ...string) *Audit {
	if Actor(ctx) == "" {
		return nil
	}
	return e.NewAudit(ctx, verb, AuditTarget(target...))
}

// AuditTarget returns the filter for a verb that changes a single object. pairs alternate between a
// kind, such as "queue", and a name.
func AuditTarget(pairs ...string) string {
	target := make(map[string]string, len(pairs)/2)
	for pair := range slices.Chunk(pairs, 2) {
		target[pair[0]] = pair[1]
	}
	text, _ := Marshal(target) // marshaling strings cannot fail
	return text
}

// Note records, in q's transaction, that the verb has changed n more objects, and returns the ID of the entry, which is 0
// if there is none. The caller must call committed after the commit.
func (a *Audit) Note(ctx context.Context, q Querier, now time.Time, n int64) (id int64, committed func(), err error) {
	if a == nil || n == 0 {
		return 0, func() {}, nil
	}
	r := a.row
	r.At, r.N = now, n
	id, err = a.store.Note(ctx, q, r)
	return id, func() { a.row.ID = id }, err
}

// NoteOne is Note for a verb that changes a single object in a single transaction.
func (a *Audit) NoteOne(ctx context.Context, q Querier, now time.Time) error {
	_, _, err := a.Note(ctx, q, now, 1)
	return err
}
