package engine

import (
	"context"
	"slices"
	"time"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/store"
)

// Audit is the row that a verb leaves in the file, by the transactions that it changes something in.
// A nil Audit leaves none.
type Audit struct{ row row.AuditRow }

// NewAudit returns the row of a verb that is called with ctx, on what filter says, as JSON.
func NewAudit(ctx context.Context, verb, filter string) *Audit {
	return &Audit{row.AuditRow{Who: Actor(ctx), Remote: remote(ctx), Verb: verb, Filter: filter}}
}

// AuditActor is NewAudit for a verb that is an application's as well as an operator's: nil where
// ctx names no actor. target is as in AuditTarget.
func AuditActor(ctx context.Context, verb string, target ...string) *Audit {
	if Actor(ctx) == "" {
		return nil
	}
	return NewAudit(ctx, verb, AuditTarget(target...))
}

// AuditTarget is the filter of a verb for one thing: pairs of what it is, such as "queue", and which.
func AuditTarget(pairs ...string) string {
	target := make(map[string]string, len(pairs)/2)
	for pair := range slices.Chunk(pairs, 2) {
		target[pair[0]] = pair[1]
	}
	text, _ := Marshal(target) // strings cannot fail
	return text
}

// Note says, in the transaction on q, that the verb has changed n more. committed is to be called
// once that is committed.
func (a *Audit) Note(ctx context.Context, q Querier, now time.Time, n int64) (committed func(), err error) {
	if a == nil || n == 0 {
		return func() {}, nil
	}
	row := a.row
	row.AtMS, row.N = now.UnixMilli(), n
	id, err := store.Audits{}.Note(ctx, q, row)
	return func() { a.row.ID = id }, err
}

// NoteOne is Note for a verb of one transaction.
func (a *Audit) NoteOne(ctx context.Context, q Querier, now time.Time) error {
	_, err := a.Note(ctx, q, now, 1)
	return err
}
