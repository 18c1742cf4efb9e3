package honker

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/wake"
)

// GroupOptions configures a Group handle. From and Filter are stored in the file with the group; the other
// fields apply to this process only. The zero value of a field means its default.
type GroupOptions struct {
	Lease       time.Duration // how long a member's lease on an event lasts, and its membership unless renewed; default 30s
	MaxAttempts int           // number of deliveries after which an unacked event is dead; 0 means no limit
	Backoff     Backoff       // delay before a nacked event is delivered again; nil: none
	From        From          // start position of a new group; default Beginning
	Filter      Filter        // nil means all events; the filter of the most recent Join applies
}

const defaultGroupLease = 30 * time.Second

func (o *GroupOptions) withDefaults(s *stream) (GroupOptions, *row.Filter, error) {
	var out GroupOptions
	if o != nil {
		out = *o
	}
	filter, err := s.filterOf(out.Filter)
	err = errors.Join(err, engine.NotNegative("Lease", out.Lease), out.From.check())
	if out.MaxAttempts < 0 {
		err = errors.Join(err, fmt.Errorf("%w: negative MaxAttempts %d", ErrInvalid, out.MaxAttempts))
	}
	if out.Lease == 0 {
		out.Lease = defaultGroupLease
	}
	return out, filter, err
}

// Group is a set of members that share the events of a stream. Each event is given to a single member at a time,
// which acks it or gives it back. A Group is a cheap handle, safe for concurrent use. The group itself exists
// from the first [Group.Join] until [Group.Delete]. During that time [Stream.Compact] does not delete events
// that the group has yet to see.
//
// New events are delivered first, in order. Events that were nacked or whose lease has expired are delivered
// when there are no new events, most recently claimed first. An event that keeps failing therefore does not hold
// up the others.
type Group[E any] struct{ *group }

// group is the untyped part of a Group.
type group struct {
	db     *DB
	s      *stream
	name   string
	opts   GroupOptions
	filter *row.Filter
	err    error // bad name or option, returned by every verb
}

// Group returns a handle for the group called name. It does not access the file; the handle's first verb returns
// [ErrInvalid] for an invalid name or option. A nil opts means defaults. Group offsets and consumer offsets are
// independent of each other.
func (s *Stream[E]) Group(name string, opts *GroupOptions) *Group[E] {
	o, filter, err := opts.withDefaults(s.stream)
	err = errors.Join(s.err, err, engine.CheckName("group", name))
	return &Group[E]{&group{db: s.db, s: s.stream, name: name, opts: o, filter: filter, err: err}}
}

// GroupInfo describes the progress of a group.
type GroupInfo struct {
	Name     string
	Topic    string   // or the pattern that the group reads
	Cursor   int64    // all events up to this offset have been delivered
	Lag      int64    // number of events above Cursor that match the group's filter
	Leased   int64    // number of events held by members
	Reclaim  int64    // number of returned events waiting for a member
	Dead     int64    // number of dead events; see [Group.Dead]
	LowWater int64    // all events up to this offset are acked or dead
	Members  []string // sorted by name
}

// Info returns the progress of the group. It never waits for the writer, but reads every event of the lag in
// order to count them. It returns [ErrNotFound] if no member has joined the group yet.
func (g *Group[E]) Info(ctx context.Context) (GroupInfo, error) {
	info, err := g.info(ctx)
	return info, fail("read group info", g.name, err)
}

func (g *group) info(ctx context.Context) (info GroupInfo, err error) {
	if g.err != nil {
		return info, g.err
	}
	err = g.db.engine.Read(ctx, func(ctx context.Context, q engine.Querier) error {
		row, err := g.find(ctx, q)
		if err != nil {
			return err
		}
		info, err = g.db.groupInfo(ctx, q, row)
		return err
	})
	return info, err
}

// find reads the group. It returns ErrNotFound if the group does not exist. If the group's filter is unreadable, it
// returns the group together with an error. A group created later under the same name has a different ID.
func (g *group) find(ctx context.Context, q engine.Querier) (row.Group, error) {
	rows, err := g.db.engine.Stores.Groups.List(ctx, q, g.s.name, g.name)
	if err != nil {
		return row.Group{}, err
	}
	if len(rows) == 0 {
		return row.Group{}, fmt.Errorf("group %w", ErrNotFound)
	}
	return rows[0], rows[0].Unreadable
}

func (db *DB) groupInfo(ctx context.Context, q engine.Querier, row row.Group) (GroupInfo, error) {
	p, err := db.engine.Stores.Groups.Progress(ctx, q, row.ID, allMembers, db.engine.Now())
	if err != nil {
		return GroupInfo{}, err
	}
	var members []string
	for _, m := range p.Members {
		if !m.Expired {
			members = append(members, m.Name)
		}
	}
	lag, err := db.lag(ctx, q, row.Selection(), p.Cursor)
	return GroupInfo{
		Name: row.Name, Topic: row.Topic, Cursor: p.Cursor, Lag: lag,
		Leased: p.Leased, Reclaim: p.Back, Dead: p.Dead,
		LowWater: p.LowWater, Members: members,
	}, err
}

const allMembers = -1

// Groups lists the groups of the topic or pattern, sorted by name. It never waits for the writer. To compute the
// lags it reads every event that a group has yet to see. It checks ctx between groups.
func (s *Stream[E]) Groups(ctx context.Context) ([]GroupInfo, error) {
	infos, err := s.groups(ctx)
	return infos, fail("list groups", s.name, err)
}

func (s *stream) groups(ctx context.Context) ([]GroupInfo, error) {
	if s.err != nil {
		return nil, s.err
	}
	var rows []row.Group
	err := s.db.engine.Read(ctx, func(ctx context.Context, q engine.Querier) (err error) {
		rows, err = s.db.engine.Stores.Groups.List(ctx, q, s.name, "")
		return err
	})
	if err != nil {
		return nil, err
	}
	infos := make([]GroupInfo, 0, len(rows))
	for _, row := range rows {
		if row.Unreadable != nil {
			s.db.opts.Logger.Warn("honker: unreadable group omitted from the list", "topic", row.Topic, "group", row.Name, "error", row.Unreadable)
			continue
		}
		var info GroupInfo
		err := s.db.engine.Read(ctx, func(ctx context.Context, q engine.Querier) (err error) {
			info, err = s.db.groupInfo(ctx, q, row)
			return err
		})
		if err != nil {
			return nil, err
		}
		infos = append(infos, info)
	}
	return infos, nil
}

// Delete deletes the group together with its members and their claims. After that, settling any of these claims
// returns [ErrClaimLost]. Delete returns false if the group does not exist.
//
// Delete waits for the writer until ctx ends or BusyTimeout has passed. A large group's claims are deleted after the
// group itself, in transactions of a few milliseconds with pauses in which other writers can proceed. If this is
// interrupted by an error or because ctx ends, the remaining claims do no harm except that [Stream.Compact] keeps
// their dead events until [DB.Maintain] deletes the claims.
func (g *Group[E]) Delete(ctx context.Context) (bool, error) {
	err := g.drop(ctx)
	if errors.Is(err, ErrNotFound) {
		return false, nil
	}
	return err == nil, fail("delete group", g.name, err)
}

func (g *group) drop(ctx context.Context) error {
	if g.err != nil {
		return g.err
	}
	p := g.db.engine.NewPace()
	var id int64
	n := 0
	audit := g.db.engine.AuditActor(ctx, "delete group", "topic", g.s.name, "group", g.name)
	err := p.Write(ctx, func(ctx context.Context, q engine.Querier, now time.Time) error {
		row, err := g.find(ctx, q)
		if err != nil && row.Unreadable == nil {
			return err
		}
		id = row.ID
		if n, err = g.db.engine.Stores.Groups.Drop(ctx, q, id, p.Size); err != nil { // enough for most groups
			return err
		}
		return audit.NoteOne(ctx, q, now)
	})
	if err != nil || n < p.Size {
		return err
	}
	if err := p.Rest(ctx); err != nil {
		return err
	}
	return g.db.dropClaims(ctx, p, id)
}

// dropClaims deletes the claims of a deleted group.
func (db *DB) dropClaims(ctx context.Context, p *engine.Pace, id int64) error {
	for {
		n := 0
		err := p.Write(ctx, func(ctx context.Context, q engine.Querier, _ time.Time) (err error) {
			n, err = db.engine.Stores.Groups.Drop(ctx, q, id, p.Size)
			return err
		})
		if err != nil || n < p.Size {
			return err
		}
		if err := p.Rest(ctx); err != nil {
			return err
		}
	}
}

// DeadEvent is an event that a group no longer delivers, because it has no attempts left or its payload does not
// decode.
type DeadEvent[E any] struct {
	Event[E]
	Attempts  int
	LastError string
	DiedAt    time.Time
}

// Dead yields the group's dead events in order. They stay in the stream, even after a [Stream.Compact], until
// [Group.Redeliver] or [Group.Discard] is called. Dead never waits for the writer.
//
// An event that does not decode is yielded together with an error, and the iteration continues. Any other error, such
// as ctx's error when ctx ends, is yielded without an event and ends the iteration. If the group does not exist, the
// error is [ErrNotFound].
func (g *Group[E]) Dead(ctx context.Context) iter.Seq2[*DeadEvent[E], error] {
	return func(yield func(*DeadEvent[E], error) bool) {
		after := int64(0)
		for {
			page, err := g.dead(ctx, after)
			if err != nil {
				yield(nil, fail("list dead events", g.name, err))
				return
			}
			for _, row := range page {
				after = row.Offset
				if !yield(newDeadEvent[E](row)) {
					return
				}
			}
			if len(page) == 0 {
				return
			}
		}
	}
}

func (g *group) dead(ctx context.Context, after int64) (page []row.DeadDelivery, err error) {
	if g.err != nil {
		return nil, g.err
	}
	err = g.db.engine.Read(ctx, func(ctx context.Context, q engine.Querier) error {
		row, err := g.find(ctx, q)
		if err != nil {
			return err
		}
		page, err = g.db.engine.Stores.Groups.Dead(ctx, q, row.ID, after, g.s.opts.Batch)
		return err
	})
	return page, err
}

func newDeadEvent[E any](row row.DeadDelivery) (*DeadEvent[E], error) {
	e, err := newEvent[E](&row.Event)
	return &DeadEvent[E]{
		Event: *e, Attempts: int(row.Attempts), LastError: row.LastError, DiedAt: row.DiedAt,
	}, readError(row.Offset, err)
}

// Redeliver makes a dead event available again, with its full number of attempts. It returns false if the dead event
// does not exist, and [ErrNotFound] if the group does not exist. It waits for the writer until ctx ends or
// BusyTimeout has passed.
func (g *Group[E]) Redeliver(ctx context.Context, offset int64) (bool, error) {
	found, err := g.redeliver(ctx, alone("RedeliverTx"), offset)
	return found, fail("redeliver", g.name, err)
}

// RedeliverTx is like [Group.Redeliver] but runs within tx.
func (g *Group[E]) RedeliverTx(ctx context.Context, tx Tx, offset int64) (bool, error) {
	found, err := g.redeliver(ctx, within(tx), offset)
	return found, fail("redeliver", g.name, err)
}

func (g *group) redeliver(ctx context.Context, c carrier, offset int64) (found bool, err error) {
	var group int64
	found, err = g.settleDead(ctx, c, "redeliver event", offset, func(ctx context.Context, q engine.Querier, id int64, now time.Time) (bool, error) {
		group = id
		return g.db.engine.Stores.Groups.Revive(ctx, q, id, offset, now)
	})
	if err == nil && found {
		err = g.db.wakeAfter(ctx, c, wake.Group(groupKey(group)))
	}
	return found, err
}

// Discard removes a dead event from the group for good. It returns false if there is no such dead event, and
// [ErrNotFound] if there is no such group. It waits for the writer until ctx ends or BusyTimeout has passed.
func (g *Group[E]) Discard(ctx context.Context, offset int64) (bool, error) {
	found, err := g.discard(ctx, alone("DiscardTx"), offset)
	return found, fail("discard", g.name, err)
}

// DiscardTx is like [Group.Discard] but runs within tx.
func (g *Group[E]) DiscardTx(ctx context.Context, tx Tx, offset int64) (bool, error) {
	found, err := g.discard(ctx, within(tx), offset)
	return found, fail("discard", g.name, err)
}

func (g *group) discard(ctx context.Context, c carrier, offset int64) (bool, error) {
	return g.settleDead(ctx, c, "discard event", offset, func(ctx context.Context, q engine.Querier, id int64, _ time.Time) (bool, error) {
		return g.db.engine.Stores.Groups.Discard(ctx, q, id, offset)
	})
}

// settleDead calls settle for a dead event. verb is recorded in the audit log.
func (g *group) settleDead(ctx context.Context, c carrier, verb string, offset int64,
	settle func(ctx context.Context, q engine.Querier, id int64, now time.Time) (bool, error)) (found bool, err error) {
	if err := errors.Join(g.err, Offset(offset).check()); err != nil {
		return false, err
	}
	audit := g.db.engine.AuditActor(ctx, verb, "topic", g.s.name, "group", g.name, "offset", strconv.FormatInt(offset, 10))
	err = g.db.write(ctx, c, func(ctx context.Context, q engine.Querier, now time.Time) error {
		row, err := g.find(ctx, q)
		if err != nil {
			return err
		}
		if found, err = settle(ctx, q, row.ID, now); err != nil || !found {
			return err
		}
		return audit.NoteOne(ctx, q, now)
	}, noted)
	return found, err
}
