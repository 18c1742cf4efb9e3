package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
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
	// it into a JobFilter. Lists are truncated to 100 elements. Requeue adds its To, Delay and Spread as text.
	// For other verbs it names the object, such as {"queue": "mails"}, and for a pause its reason and end.
	// Filter is nil if the verb has no object or if the filter was too long.
	Filter json.RawMessage
	N      int64 // number of jobs changed; 1 for other objects
}

// AuditOptions configures Audit. The zero value of a field selects its default.
type AuditOptions struct {
	Before int64 // list only entries with a smaller ID, such as the last ID of the previous page; 0 means all
	Limit  int   // default 100, at most 1000

	// An entry must match all of these that are set. Queue and Job match entries that name them. A change of all jobs
	// with an error, for example, names neither.
	Queue        string // queue or relay queue
	Job          int64
	Verb, Actor  string
	Since, Until time.Time // Since is inclusive, Until is exclusive
}

// Audit lists changes made by operators, newest first. The file keeps the 10,000 newest entries.
//
// The following calls are always recorded: Enqueue, Requeue, RequeueTx, Discard, Bury, Cancel, RunNow, ImportJobs,
// BreakLock, BreakRelayPartition, BreakPresence, RequeueRelayDead, DiscardRelayDead, StopActors, PauseActors and
// ResumeActors. The calls below are also made by applications, so they are recorded only if [honker.WithActor] names an actor:
//   - Pause, Resume, SetLimits and SetRetention of a queue or a topic
//   - Seek and DeleteConsumer
//   - Redeliver, Discard and Delete of a group
//   - Cancel of a batch
//   - the methods of a honker.Scheduler
//   - Maintain with Once, and Vacuum
//
// Calls that changed nothing are not recorded. Audit never waits for the writer. It returns
// [honker.ErrInvalid] if Before or Job is negative, if Limit is out of bounds, or if db is nil. A nil opts selects
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
	if o.Before < 0 || o.Job < 0 || o.Limit < 0 || o.Limit > maxAudit {
		return nil, fmt.Errorf("%w: Before is %d, Job is %d and Limit is %d; Before and Job must not be negative, and Limit must be 0 to %d", honker.ErrInvalid, o.Before, o.Job, o.Limit, maxAudit)
	}
	if o.Before == 0 {
		o.Before = math.MaxInt64
	}
	if o.Limit == 0 {
		o.Limit = 100
	}
	var all []AuditEntry
	err := read(ctx, db, func(ctx context.Context, q engine.Querier, s *engine.Stores) (err error) {
		all, err = o.find(ctx, q, s.Audits)
		return err
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// maxAudit is the maximum Limit.
const maxAudit = 1000

// find reads the log until it has found Limit entries.
func (o AuditOptions) find(ctx context.Context, q engine.Querier, log engine.AuditStore) ([]AuditEntry, error) {
	all := []AuditEntry{}
	size := o.Limit
	for before := o.Before; ; size = maxAudit {
		rows, err := log.List(ctx, q, before, size)
		if err != nil {
			return nil, err
		}
		for _, r := range rows {
			before = r.ID
			e := AuditEntry{ID: r.ID, At: r.At, Actor: r.Who, Remote: r.Remote, Verb: r.Verb, N: r.N}
			if r.Filter != "" {
				e.Filter = json.RawMessage(r.Filter)
			}
			if !o.matches(e) {
				continue
			}
			if all = append(all, e); len(all) == o.Limit {
				return all, nil
			}
		}
		if len(rows) < size {
			return all, nil
		}
	}
}

func (o AuditOptions) matches(e AuditEntry) bool {
	return (o.Verb == "" || o.Verb == e.Verb) && (o.Actor == "" || o.Actor == e.Actor) &&
		!e.At.Before(o.Since) && (o.Until.IsZero() || e.At.Before(o.Until)) && o.named(e)
}

// named reports whether the entry names the queue and the job that are looked for.
func (o AuditOptions) named(e AuditEntry) bool {
	if o.Queue == "" && o.Job == 0 {
		return true
	}
	var f JobFilter
	if _, ok := jobChanges[e.Verb]; ok {
		_ = json.Unmarshal(e.Filter, &f)
	} else {
		var target map[string]string
		_ = json.Unmarshal(e.Filter, &target)
		f.Queues = []string{target["queue"], target["relay queue"]}
		id, _ := strconv.ParseInt(target["job"], 10, 64)
		f.IDs = []int64{id}
	}
	return (o.Queue == "" || slices.Contains(f.Queues, o.Queue)) && (o.Job == 0 || slices.Contains(f.IDs, o.Job))
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

// audited encodes the fields of f that are set as JSON, and the fields of more, which alternates between names and
// texts. It returns "" if the result is too long.
func audited(f JobFilter, more ...string) string {
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
	for pair := range slices.Chunk(more, 2) {
		if set[pair[0]], err = json.Marshal(pair[1]); err != nil {
			return ""
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
