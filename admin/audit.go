package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/store"
)

// AuditEntry says what was changed by a verb for operators, in the transactions of the verb itself.
type AuditEntry struct {
	ID     int64 // the newest has the largest
	At     time.Time
	Actor  string // see honker.WithActor; "": unknown
	Remote string // see WithRemote; "": unknown
	Verb   string // as errors name it: "requeue", "break lock", "pause"; of a dead event of a group "redeliver event" and "discard event"
	// Filter is, of a verb with a JobFilter, the fields that were set: json.Unmarshal makes a JobFilter
	// of it. Of longer lists it has the first 100. Of another verb it is what that was for, such
	// as {"queue": "mails"}. nil: for nothing in particular, or it was too long.
	Filter json.RawMessage
	N      int64 // how much was changed: jobs, or 1
}

// AuditOptions of one Audit. The zero value of a field means its default.
type AuditOptions struct {
	Before int64 // only those with a smaller ID: of the last one of the page before
	Limit  int   // default 100, at most 1000
}

// auditStore are the statements about the audit.
type auditStore interface {
	List(ctx context.Context, q engine.Querier, before int64, limit int) ([]row.AuditRow, error)
}

var audits auditStore = store.Audits{}

// Audit returns what was changed, the newest first. The file keeps the newest 10,000 entries:
//   - of Enqueue, Requeue, RequeueTx, Discard, Cancel, RunNow, ImportJobs, BreakLock, BreakRelayPartition and
//     BreakPresence, with an actor or without,
//   - of Pause, Resume, SetLimits and SetRetention of a queue or a topic, of Seek and DeleteConsumer,
//     of Redeliver, Discard and Delete of a group, of Cancel of a batch, of the verbs of a honker.Scheduler, and of a Maintain
//     with Once, where [honker.WithActor] names an actor: otherwise they are the application's own.
//
// A call that has changed nothing leaves none. It never waits for the writer. A negative Before,
// or a Limit out of bounds, is [honker.ErrInvalid], and so is nil as the DB. nil opts means defaults.
func Audit(ctx context.Context, db *honker.DB, opts *AuditOptions) ([]AuditEntry, error) {
	all, err := listAudit(ctx, db, opts)
	return all, engine.Wrap("list audit", "", err)
}

func listAudit(ctx context.Context, db *honker.DB, opts *AuditOptions) ([]AuditEntry, error) {
	o := AuditOptions{}
	if opts != nil {
		o = *opts
	}
	if o.Before < 0 || o.Limit < 0 || o.Limit > 1000 {
		return nil, fmt.Errorf("%w: Before %d, Limit %d", honker.ErrInvalid, o.Before, o.Limit)
	}
	if o.Before == 0 {
		o.Before = math.MaxInt64
	}
	if o.Limit == 0 {
		o.Limit = 100
	}
	var all []AuditEntry
	err := read(ctx, db, func(ctx context.Context, q engine.Querier) error {
		rows, err := audits.List(ctx, q, o.Before, o.Limit)
		all = make([]AuditEntry, len(rows))
		for i, r := range rows {
			all[i] = AuditEntry{ID: r.ID, At: engine.InstantMS(r.AtMS), Actor: r.Who, Remote: r.Remote, Verb: r.Verb, N: r.N}
			if r.Filter != "" {
				all[i].Filter = json.RawMessage(r.Filter)
			}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// WithRemote returns a ctx that says from where the verbs that are called with it were asked for,
// such as the address of a browser, for [Audit]. addr is cut to 1024 bytes.
func WithRemote(ctx context.Context, addr string) context.Context {
	return engine.WithRemote(ctx, addr)
}

// Bounds of a filter in the audit.
const (
	auditList  = 100     // entries of a list
	auditBytes = 8 << 10 // of all
)

// audited are the fields of f that are set, as JSON; "" where they are too long.
func audited(f JobFilter) string {
	f.IDs, f.Queues = first(f.IDs), first(f.Queues)
	set, err := filterFields(f)
	if err != nil {
		return ""
	}
	unset, _ := filterFields(JobFilter{})
	for name, value := range set {
		if string(value) == string(unset[name]) {
			delete(set, name)
		}
	}
	text, err := json.Marshal(set)
	if err != nil || len(text) > auditBytes {
		return ""
	}
	return string(text)
}

func first[T any](list []T) []T { return slices.Clip(list[:min(len(list), auditList)]) }

// filterFields are those of f as JSON, by their names. JSON does not know times after the year 9999.
func filterFields(f JobFilter) (all map[string]json.RawMessage, err error) {
	text, err := json.Marshal(f)
	if err != nil {
		return nil, err
	}
	return all, json.Unmarshal(text, &all)
}
