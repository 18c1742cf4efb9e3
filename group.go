package honker

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/honker-go/honker/internal/store"
)

// GroupOptions of a handle. From and Filter are kept in the file with the group; the rest
// lives in this process. The zero value of a field means its default.
type GroupOptions struct {
	Lease       time.Duration // how long a member holds an event, and how long a silent one stays a member; default 30s
	MaxAttempts int           // an event that was given out so often, and not acked, is dead; 0: no bound
	Backoff     Backoff       // how long an event rests that was nacked; nil: not at all
	From        From          // where a new group begins; default Beginning
	Filter      Filter        // nil: all events; the last Join's counts
}

const groupLease = 30 * time.Second

func (o *GroupOptions) withDefaults() (GroupOptions, *store.Filter, error) {
	var out GroupOptions
	if o != nil {
		out = *o
	}
	filter, err := filterOf(out.Filter)
	err = errors.Join(err, notNegative("Lease", out.Lease), out.From.check())
	if out.MaxAttempts < 0 {
		err = errors.Join(err, fmt.Errorf("%w: MaxAttempts %d", ErrInvalid, out.MaxAttempts))
	}
	if out.Lease == 0 {
		out.Lease = groupLease
	}
	return out, filter, err
}

// Group is a set of members that share the events of a stream: each event is given to
// one of them at a time, who acks it or gives it back. It is a cheap handle; the group
// exists from the first [Group.Join] to [Group.Delete], and keeps the events from
// [Stream.Compact] that it has still to see.
//
// Events that nobody was given come first, in order. Those that came back, because they
// were nacked or their lease ran out, come when there are no others, the last one first:
// one event that fails does not hold up the rest.
type Group[E any] struct{ g *group }

// group is a Group without its type.
type group struct {
	s      *stream
	name   string
	opts   GroupOptions
	filter *store.Filter
	err    error // a bad name or option: said by the first verb
}

// Group returns a handle. It touches nothing; a bad name or option is [ErrInvalid] from
// its first verb. nil opts means defaults. Offsets of groups and of consumers have
// nothing to do with one another.
func (s *Stream[E]) Group(name string, opts *GroupOptions) *Group[E] {
	o, filter, err := opts.withDefaults()
	err = errors.Join(s.s.err, err, checkName("group", name))
	return &Group[E]{&group{s: s.s, name: name, opts: o, filter: filter, err: err}}
}

func (g *group) usable() error {
	if g.err != nil {
		return g.err
	}
	return g.s.usable()
}

// GroupInfo is how far a group has come.
type GroupInfo struct {
	Name     string
	Topic    string   // or the pattern that it follows
	Cursor   int64    // events up to here have been given out
	Lag      int64    // events above it; what the group's filter leaves out does not count
	Leased   int64    // events that members hold
	Reclaim  int64    // events that came back and wait for a member
	Dead     int64    // events that were given up, see [Group.Dead]
	LowWater int64    // events up to here are acked, or dead
	Members  []string // by name
}

// Info returns how far the group has come. Counting its lag reads that much.
// [ErrNotFound]: nobody has joined it yet.
func (g *Group[E]) Info(ctx context.Context) (GroupInfo, error) {
	info, err := g.g.info(ctx)
	return info, fail("group info", g.g.name, err)
}

func (g *group) info(ctx context.Context) (GroupInfo, error) {
	row, err := g.row(ctx)
	if err != nil {
		return GroupInfo{}, err
	}
	info, err := g.s.groupInfo(ctx, row)
	return info, g.s.db.because(err)
}

// row reads the group.
func (g *group) row(ctx context.Context) (store.Group, error) {
	if err := g.usable(); err != nil {
		return store.Group{}, err
	}
	row, err := store.Groups{}.Get(ctx, g.s.db.own, g.s.name, g.name)
	return row, g.s.db.because(err)
}

func (s *stream) groupInfo(ctx context.Context, row store.Group) (GroupInfo, error) {
	now := time.Now().UnixMilli()
	counts, err := store.Groups{}.Counts(ctx, s.db.own, row.ID, now)
	if err != nil {
		return GroupInfo{}, err
	}
	members, err := store.Groups{}.Members(ctx, s.db.own, row.ID, now)
	if err != nil {
		return GroupInfo{}, err
	}
	lag, err := store.Streams{}.Lag(ctx, s.db.own, row.Selection(), counts.Cursor)
	return GroupInfo{
		Name: row.Name, Topic: row.Topic, Cursor: counts.Cursor, Lag: lag,
		Leased: counts.Leased, Reclaim: counts.Back, Dead: counts.Dead,
		LowWater: counts.LowWater, Members: members,
	}, err
}

// Groups lists the groups of the topic, or of the pattern, by name.
func (s *Stream[E]) Groups(ctx context.Context) ([]GroupInfo, error) {
	infos, err := s.s.groups(ctx)
	return infos, fail("groups", s.s.name, s.s.db.because(err))
}

func (s *stream) groups(ctx context.Context) ([]GroupInfo, error) {
	if err := s.usable(); err != nil {
		return nil, err
	}
	rows, err := store.Groups{}.List(ctx, s.db.own, s.name)
	infos := make([]GroupInfo, len(rows))
	for i := range rows {
		if err == nil {
			infos[i], err = s.groupInfo(ctx, rows[i])
		}
	}
	return infos, err
}

// Delete forgets the group, its members and what they hold: their settles are
// [ErrClaimLost] from now on. false: there was no such group.
func (g *Group[E]) Delete(ctx context.Context) (deleted bool, err error) {
	if g.g.err != nil {
		return false, fail("delete group", g.g.name, g.g.err)
	}
	err = g.g.s.db.do(ctx, "", write(func(ctx context.Context, q store.Querier, _ time.Time) error {
		row, err := store.Groups{}.Get(ctx, q, g.g.s.name, g.g.name)
		if err == nil {
			err = store.Groups{}.Drop(ctx, q, row.ID)
		}
		return err
	}))
	deleted = err == nil
	if errors.Is(err, ErrNotFound) {
		err = nil
	}
	return deleted, fail("delete group", g.g.name, err)
}

// DeadEvent is an event that a group has given up.
type DeadEvent[E any] struct {
	Event[E]
	Attempts  int
	LastError string
	DiedAt    time.Time
}

// Dead yields the events that the group has given up, in order. They keep their place in
// the stream, also from [Stream.Compact], until [Group.Redeliver] or [Group.Discard].
// One that does not decode is yielded with an error, and the loop may go on; any other
// error comes without an event and is the last.
func (g *Group[E]) Dead(ctx context.Context) iter.Seq2[*DeadEvent[E], error] {
	return func(yield func(*DeadEvent[E], error) bool) {
		for after, err := int64(0), error(nil); ; {
			var page []store.DeadDelivery
			if page, err = g.g.dead(ctx, after); err != nil {
				yield(nil, fail("dead events", g.g.name, err))
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

func (g *group) dead(ctx context.Context, after int64) ([]store.DeadDelivery, error) {
	row, err := g.row(ctx)
	if err != nil {
		return nil, err
	}
	page, err := store.Groups{}.Dead(ctx, g.s.db.own, row.ID, after, g.s.opts.Batch)
	return page, g.s.db.because(err)
}

func newDeadEvent[E any](row store.DeadDelivery) (*DeadEvent[E], error) {
	e, err := newEvent[E](&row.Event)
	return &DeadEvent[E]{Event: *e, Attempts: int(row.Attempts), LastError: row.LastError, DiedAt: instantMS(row.DiedMS)}, err
}

// Redeliver lets a dead event be given out again, with all its attempts. false: there is
// no such dead event.
func (g *Group[E]) Redeliver(ctx context.Context, offset int64) (bool, error) {
	row, found, err := g.g.settleDead(ctx, offset, func(ctx context.Context, q store.Querier, id, now int64) (bool, error) {
		return store.Groups{}.Revive(ctx, q, id, offset, now)
	})
	if found {
		g.g.s.db.hub.hint(groupReturn, groupKey(row.ID))
	}
	return found, fail("redeliver", g.g.name, err)
}

// Discard forgets a dead event: the group is done with it. false: there is no such dead
// event.
func (g *Group[E]) Discard(ctx context.Context, offset int64) (bool, error) {
	_, found, err := g.g.settleDead(ctx, offset, func(ctx context.Context, q store.Querier, id, _ int64) (bool, error) {
		return store.Groups{}.DropDead(ctx, q, id, offset)
	})
	return found, fail("discard", g.g.name, err)
}

func (g *group) settleDead(ctx context.Context, offset int64, verb func(ctx context.Context, q store.Querier, id, now int64) (bool, error)) (row store.Group, found bool, err error) {
	if err := Offset(offset).check(); err != nil {
		return row, false, err
	}
	if row, err = g.row(ctx); err != nil {
		return row, false, err
	}
	err = g.s.db.do(ctx, "", write(func(ctx context.Context, q store.Querier, now time.Time) (err error) {
		found, err = verb(ctx, q, row.ID, now.UnixMilli())
		return err
	}))
	return row, found, err
}
