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

// groupStore are the statements on the tables of groups, their members and what they hold.
type groupStore interface {
	Get(ctx context.Context, q engine.Querier, topic, name string) (row.Group, error)
	List(ctx context.Context, q engine.Querier, topic string) ([]row.Group, error)
	Add(ctx context.Context, q engine.Querier, topic, name string, cursor int64, f *row.Filter, nowMS int64) (row.Group, error)
	Drop(ctx context.Context, q engine.Querier, id int64) error
	DropClaims(ctx context.Context, q engine.Querier, group int64, limit int) (int, error)
	Left(ctx context.Context, q engine.Querier) ([]int64, error)
	Counts(ctx context.Context, q engine.Querier, group, nowMS int64) (row.Counts, error)
	States(ctx context.Context, q engine.Querier, ids []int64, nowMS int64) ([]row.GroupState, error)
	Ready(ctx context.Context, q engine.Querier, id, nowMS int64) (ready bool, nextMS int64, err error)

	Members(ctx context.Context, q engine.Querier, group, nowMS int64) ([]string, error)
	TouchMember(ctx context.Context, q engine.Querier, m row.Member, nowMS, expiresMS int64) (bool, error)
	Holder(ctx context.Context, q engine.Querier, m row.Member) (instance string, expiresMS int64, found bool, err error)
	DropSilent(ctx context.Context, q engine.Querier, group, nowMS int64) error
	Leave(ctx context.Context, q engine.Querier, m row.Member, nowMS int64) error

	Claim(ctx context.Context, q engine.Querier, c row.GroupClaim, nowMS int64) ([]row.Delivery, []row.GroupDeath, error)
	Ack(ctx context.Context, q engine.Querier, h row.Holding, nowMS int64) (bool, error)
	Nack(ctx context.Context, q engine.Querier, h row.Holding, readyMS, maxAttempts int64, cause string, nowMS int64) (held, died bool, err error)
	Extend(ctx context.Context, q engine.Querier, h row.Holding, expiresMS, nowMS int64) (bool, error)
	Release(ctx context.Context, q engine.Querier, group, token int64, events []int64, nowMS int64) error

	Dead(ctx context.Context, q engine.Querier, group, after int64, limit int) ([]row.DeadDelivery, error)
	Revive(ctx context.Context, q engine.Querier, group, offset, nowMS int64) (bool, error)
	DropDead(ctx context.Context, q engine.Querier, group, offset int64) (bool, error)
}

// GroupOptions of a handle. From and Filter are kept in the file with the group; the rest
// lives in this process. The zero value of a field means its default.
type GroupOptions struct {
	Lease       time.Duration // how long a member holds an event, and how long a silent one stays a member; default 30s
	MaxAttempts int           // an event that was given out so often, and not acked, is dead; 0: no bound
	Backoff     Backoff       // how long an event rests that was nacked; nil: not at all
	From        From          // where a new group begins; default Beginning
	Filter      Filter        // nil: all events; that of the last Join counts
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
		err = errors.Join(err, fmt.Errorf("%w: MaxAttempts %d", ErrInvalid, out.MaxAttempts))
	}
	if out.Lease == 0 {
		out.Lease = defaultGroupLease
	}
	return out, filter, err
}

// Group is a set of members that share the events of a stream: each event is given to
// one of them at a time, which acks it or gives it back. It is a cheap handle, safe for
// concurrent use; the group exists from the first [Group.Join] to [Group.Delete], and keeps
// the events from [Stream.Compact] that it has yet to see.
//
// Events that no member was given come first, in order. Those that came back, because they
// were nacked or their lease ran out, come when there are no others, the last one first:
// one event that fails does not hold up the rest.
type Group[E any] struct{ *group }

// group is a Group without its type.
type group struct {
	db     *DB
	s      *stream
	name   string
	opts   GroupOptions
	filter *row.Filter
	err    error // a bad name or option, which every verb returns
}

// Group returns a handle. It touches nothing; a bad name or option is [ErrInvalid] from
// its first verb. nil opts means defaults. Offsets of groups and of consumers have
// nothing to do with one another.
func (s *Stream[E]) Group(name string, opts *GroupOptions) *Group[E] {
	o, filter, err := opts.withDefaults(s.stream)
	err = errors.Join(s.err, err, engine.CheckName("group", name))
	return &Group[E]{&group{db: s.db, s: s.stream, name: name, opts: o, filter: filter, err: err}}
}

// GroupInfo is how far a group has come.
type GroupInfo struct {
	Name     string
	Topic    string   // or the pattern that it reads
	Cursor   int64    // events up to here have been given out
	Lag      int64    // events above it; what the group's filter leaves out does not count
	Leased   int64    // events that members hold
	Reclaim  int64    // events that came back and wait for a member
	Dead     int64    // events that have spent their attempts, see [Group.Dead]
	LowWater int64    // events up to here are acked, or dead
	Members  []string // by name
}

// Info returns how far the group has come. It never waits for the writer. Counting the lag
// reads that much. [ErrNotFound]: the group does not exist yet, since no member has joined
// it.
func (g *Group[E]) Info(ctx context.Context) (GroupInfo, error) {
	info, err := g.info(ctx)
	return info, fail("group info", g.name, err)
}

func (g *group) info(ctx context.Context) (info GroupInfo, err error) {
	if g.err != nil {
		return info, g.err
	}
	err = g.db.engine.Read(ctx, func(ctx context.Context, q engine.Querier) error {
		row, err := g.db.groups.Get(ctx, q, g.s.name, g.name)
		if err != nil {
			return err
		}
		info, err = g.db.groupInfo(ctx, q, row)
		return err
	})
	return info, err
}

// id reads the number of the group, which a group of the same name that is made later
// does not have.
func (g *group) id(ctx context.Context) (id int64, err error) {
	if g.err != nil {
		return 0, g.err
	}
	err = g.db.engine.Read(ctx, func(ctx context.Context, q engine.Querier) error {
		row, err := g.db.groups.Get(ctx, q, g.s.name, g.name)
		id = row.ID
		return err
	})
	return id, err
}

func (db *DB) groupInfo(ctx context.Context, q engine.Querier, row row.Group) (GroupInfo, error) {
	now := time.Now().UnixMilli()
	counts, err := db.groups.Counts(ctx, q, row.ID, now)
	if err != nil {
		return GroupInfo{}, err
	}
	members, err := db.groups.Members(ctx, q, row.ID, now)
	if err != nil {
		return GroupInfo{}, err
	}
	lag, err := db.streams.Lag(ctx, q, row.Selection(), counts.Cursor)
	return GroupInfo{
		Name: row.Name, Topic: row.Topic, Cursor: counts.Cursor, Lag: lag,
		Leased: counts.Leased, Reclaim: counts.Back, Dead: counts.Dead,
		LowWater: counts.LowWater, Members: members,
	}, err
}

// Groups lists the groups of the topic, or of the pattern, by name. It never waits for the
// writer. Counting what groups have yet to see reads that much; ctx is looked at between
// them.
func (s *Stream[E]) Groups(ctx context.Context) ([]GroupInfo, error) {
	infos, err := s.groups(ctx)
	return infos, fail("groups", s.name, err)
}

func (s *stream) groups(ctx context.Context) ([]GroupInfo, error) {
	if s.err != nil {
		return nil, s.err
	}
	var rows []row.Group
	err := s.db.engine.Read(ctx, func(ctx context.Context, q engine.Querier) (err error) {
		rows, err = s.db.groups.List(ctx, q, s.name)
		return err
	})
	if err != nil {
		return nil, err
	}
	infos := make([]GroupInfo, 0, len(rows))
	for _, row := range rows {
		if row.Unreadable != nil {
			s.db.opts.Logger.Warn("honker: a group left out of the list", "topic", row.Topic, "group", row.Name, "error", row.Unreadable)
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

// Delete deletes the group, its members and what they hold: once it has returned, their
// settles are [ErrClaimLost]. false: there was no such group.
//
// It waits for the writer until ctx ends or BusyTimeout has passed. What a large group held goes
// in transactions of some milliseconds with pauses between them, in which other writers get
// the file, after the group itself. What an error, also the end of ctx, leaves of it has no
// effect but to keep dead events from [Stream.Compact], until [DB.Maintain] deletes it.
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
	audit := engine.AuditActor(ctx, "delete group", "topic", g.s.name, "group", g.name)
	err := p.Write(ctx, func(ctx context.Context, q engine.Querier, now time.Time) error {
		row, err := g.db.groups.Get(ctx, q, g.s.name, g.name)
		if err != nil && row.Unreadable == nil {
			return err
		}
		id = row.ID
		if err := g.db.groups.Drop(ctx, q, id); err != nil {
			return err
		}
		if n, err = g.db.groups.DropClaims(ctx, q, id, p.Size); err != nil { // mostly all there are
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

// dropClaims deletes what a deleted group has held.
func (db *DB) dropClaims(ctx context.Context, p *engine.Pace, id int64) error {
	for {
		n := 0
		err := p.Write(ctx, func(ctx context.Context, q engine.Querier, _ time.Time) (err error) {
			n, err = db.groups.DropClaims(ctx, q, id, p.Size)
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

// DeadEvent is an event that a group does not give out any more: its attempts are spent, or
// its payload does not decode.
type DeadEvent[E any] struct {
	Event[E]
	Attempts  int
	LastError string
	DiedAt    time.Time
}

// Dead yields the dead events of the group, in order, and ends. They keep their place in
// the stream, also from [Stream.Compact], until [Group.Redeliver] or [Group.Discard]. It
// never waits for the writer.
//
// An event that does not decode is yielded with an error, and the loop goes on; any other
// error, also the end of ctx, comes without an event and is the last. [ErrNotFound]: there
// is no such group.
func (g *Group[E]) Dead(ctx context.Context) iter.Seq2[*DeadEvent[E], error] {
	return func(yield func(*DeadEvent[E], error) bool) {
		after := int64(0)
		for {
			page, err := g.dead(ctx, after)
			if err != nil {
				yield(nil, fail("dead events", g.name, err))
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
	id, err := g.id(ctx)
	if err != nil {
		return nil, err
	}
	err = g.db.engine.Read(ctx, func(ctx context.Context, q engine.Querier) (err error) {
		page, err = g.db.groups.Dead(ctx, q, id, after, g.s.opts.Batch)
		return err
	})
	return page, err
}

func newDeadEvent[E any](row row.DeadDelivery) (*DeadEvent[E], error) {
	e, err := newEvent[E](&row.Event)
	return &DeadEvent[E]{
		Event: *e, Attempts: int(row.Attempts), LastError: row.LastError, DiedAt: engine.InstantMS(row.DiedMS),
	}, readError(row.Offset, err)
}

// Redeliver lets a dead event be given out again, with all its attempts. false: there is
// no such dead event. It waits for the writer until ctx ends or BusyTimeout has passed.
// [ErrNotFound]: there is no such group.
func (g *Group[E]) Redeliver(ctx context.Context, offset int64) (bool, error) {
	found, err := g.redeliver(ctx, alone("RedeliverTx"), offset)
	return found, fail("redeliver", g.name, err)
}

// RedeliverTx is like [Group.Redeliver], within tx.
func (g *Group[E]) RedeliverTx(ctx context.Context, tx Tx, offset int64) (bool, error) {
	found, err := g.redeliver(ctx, within(tx), offset)
	return found, fail("redeliver", g.name, err)
}

func (g *group) redeliver(ctx context.Context, c carrier, offset int64) (found bool, err error) {
	var group int64
	return g.settleDead(ctx, c, "redeliver event", offset, func(ctx context.Context, q engine.Querier, id, nowMS int64) (bool, error) {
		group = id
		return g.db.groups.Revive(ctx, q, id, offset, nowMS)
	}, func() { g.db.engine.Notifier.Wake(wake.Change{Kind: wake.GroupReturn, Name: groupKey(group)}) })
}

// Discard deletes a dead event from the group, which is done with it then. false: there is
// no such dead event. It waits for the writer until ctx ends or BusyTimeout has passed.
// [ErrNotFound]: there is no such group.
func (g *Group[E]) Discard(ctx context.Context, offset int64) (bool, error) {
	found, err := g.discard(ctx, alone("DiscardTx"), offset)
	return found, fail("discard", g.name, err)
}

// DiscardTx is like [Group.Discard], within tx.
func (g *Group[E]) DiscardTx(ctx context.Context, tx Tx, offset int64) (bool, error) {
	found, err := g.discard(ctx, within(tx), offset)
	return found, fail("discard", g.name, err)
}

func (g *group) discard(ctx context.Context, c carrier, offset int64) (bool, error) {
	return g.settleDead(ctx, c, "discard event", offset, func(ctx context.Context, q engine.Querier, id, _ int64) (bool, error) {
		return g.db.groups.DropDead(ctx, q, id, offset)
	}, noted)
}

// settleDead settles a dead event by settle, and calls committed if there was such an event. The audit
// calls that verb.
func (g *group) settleDead(ctx context.Context, c carrier, verb string, offset int64,
	settle func(ctx context.Context, q engine.Querier, id, nowMS int64) (bool, error), committed func()) (found bool, err error) {
	if err := errors.Join(g.err, Offset(offset).check()); err != nil {
		return false, err
	}
	audit := engine.AuditActor(ctx, verb, "topic", g.s.name, "group", g.name, "offset", strconv.FormatInt(offset, 10))
	err = g.db.write(ctx, c, func(ctx context.Context, q engine.Querier, now time.Time) error {
		row, err := g.db.groups.Get(ctx, q, g.s.name, g.name)
		if err != nil {
			return err
		}
		if found, err = settle(ctx, q, row.ID, now.UnixMilli()); err != nil || !found {
			return err
		}
		return audit.NoteOne(ctx, q, now)
	}, func() {
		if found {
			committed()
		}
	})
	return found, err
}
