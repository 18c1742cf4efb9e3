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
)

// AuditEntry records a change made by an operator. The entry is written in the same transaction as the
// change.
type AuditEntry struct {
	ID     int64 // increases with each entry
	At     time.Time
	Actor  string // see honker.WithActor; "" if unknown
	Remote string // see WithRemote; "" if unknown
	Verb   string // as in error messages: "requeue", "break lock", "pause"; for a group's dead events, "redeliver event" or "discard event"
	// Filter holds the JobFilter fields that were set, for verbs that take a JobFilter; json.Unmarshal decodes
	// it into a JobFilter. Lists are truncated to 100 elements. For other verbs it names the object, such as
	// {"queue": "mails"}. Filter is nil if the verb has no object or if the filter was too long.
	Filter json.RawMessage
	N      int64 // number of jobs changed; 1 for other objects
}

// AuditOptions configures Audit. The zero value of a field selects its default.
type AuditOptions struct {
	Before int64 // list only entries with a smaller ID, such as the last ID of the previous page; 0 means all
	Limit  int   // default 100, at most 1000
}

// Audit lists changes made by operators, newest first. The file keeps the 10,000 newest entries.
//
// The following calls are always recorded: Enqueue, Requeue, RequeueTx, Discard, Cancel, RunNow, ImportJobs,
// BreakLock, BreakRelayPartition and BreakPresence. The calls below are also made by applications, so they are
// recorded only if [honker.WithActor] names an actor:
//   - Pause, Resume, SetLimits and SetRetention of a queue or a topic
//   - Seek and DeleteConsumer
//   - Redeliver, Discard and Delete of a group
//   - Cancel of a batch
//   - the methods of a honker.Scheduler
//   - Maintain with Once
//
// Calls that changed nothing are not recorded. Audit never waits for the writer. It returns
// [honker.ErrInvalid] if Before is negative, if Limit is out of bounds, or if db is nil. A nil opts selects
// the defaults.
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
		return nil, fmt.Errorf("%w: Before is %d and Limit is %d; Before must not be negative, and Limit must be 0 to 1000", honker.ErrInvalid, o.Before, o.Limit)
	}
	if o.Before == 0 {
		o.Before = math.MaxInt64
	}
	if o.Limit == 0 {
		o.Limit = 100
	}
	var all []AuditEntry
	err := read(ctx, db, func(ctx context.Context, q engine.Querier, s *engine.Stores) error {
		rows, err := s.Audits.List(ctx, q, o.Before, o.Limit)
		all = make([]AuditEntry, len(rows))
		for i, r := range rows {
			all[i] = AuditEntry{ID: r.ID, At: r.At, Actor: r.Who, Remote: r.Remote, Verb: r.Verb, N: r.N}
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

// WithRemote returns a copy of ctx that carries the caller's address, such as a browser's IP address.
// [Audit] entries include the address. addr is truncated to 1024 bytes.
func WithRemote(ctx context.Context, addr string) context.Context {
	return engine.WithRemote(ctx, addr)
}

// Limits on the size of a filter in an audit entry.
const (
	auditList  = 100     // elements per list
	auditBytes = 8 << 10 // bytes in the whole filter
)

// audited encodes the fields of f that are set as JSON. It returns "" if the result is too long.
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

// filterFields returns the JSON encoding of each field of f, keyed by name. It fails for times after the
// year 9999, which JSON cannot represent.
func filterFields(f JobFilter) (all map[string]json.RawMessage, err error) {
	text, err := json.Marshal(f)
	if err != nil {
		return nil, err
	}
	return all, json.Unmarshal(text, &all)
}
