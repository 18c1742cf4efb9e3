package admin

import (
	"context"
	"slices"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// ConsumerState describes the progress of an event consumer.
type ConsumerState struct {
	Topic     string // or the pattern the consumer reads
	Name      string
	Offset    int64        // offset of the last handled event
	Lag       honker.Count // unhandled events that match the consumer's filter
	LagMax    int64        // upper bound of the lag; Lag.N unless Lag.More is set
	Behind    time.Time    // when the oldest unhandled event was published; zero if no event was counted
	CreatedAt time.Time    // zero if another binding created the consumer
	LastAck   time.Time    // when the offset was last saved; zero if it was never saved or was saved by another binding

	// Published is the number of events per second that were published to the consumer's topics in the last ten
	// minutes, and Read the number that the consumer has passed since ReadSince. Both include events that its filter
	// excludes. Read is known only if ReadSince is not zero.
	Published, Read float64
	// ReadSince is a time ten minutes or more ago, for which the file has the consumer's offset. It is zero if the
	// consumer has saved no offset for so long, if another binding saves its offset, if the consumer was moved back
	// since, or if retention has deleted events that it has read since.
	ReadSince time.Time
	// CatchUp estimates when the consumer has read everything: its lag in time, divided by the rate at which that has
	// shrunk for ten minutes or more. It is 0 if the lag has not shrunk, is shorter than a minute, or was unknown then,
	// as it is for consumers with a pattern.
	CatchUp time.Duration
	// FallsBehind reports that the lag is longer than a minute and has not shrunk for ten minutes or more.
	FallsBehind bool
}

// GroupState describes the progress of a consumer group.
type GroupState struct {
	Topic     string // or the pattern the group reads
	Name      string
	Cursor    int64        // offset of the last event delivered to a member
	Lag       honker.Count // events after Cursor that match the group's filter
	LagMax    int64        // upper bound of the lag; Lag.N unless Lag.More is set
	Behind    time.Time    // when the oldest event in Lag was published; zero if no event was counted
	Published float64      // events per second that were published to the group's topics in the last ten minutes
	Leased    int64        // events leased by members
	Reclaim   int64        // returned events waiting for redelivery
	Dead      int64        // events with no attempts left
	Members   []GroupMember
}

// GroupMember describes a member of a consumer group. The file does not record whether a member's process
// is alive. A live member renews its membership three times per Lease.
type GroupMember struct {
	Name     string
	Instance string    // process that uses the name, formatted as in error messages
	Since    time.Time // when the member joined
	Until    time.Time // end of the membership unless renewed; in the past if the member has stopped renewing it
	Leased   int64     // events leased by the member
	LeaseEnd time.Time // when the first of these leases ends unless extended; zero if there are none
}

const (
	// countedLag limits the total number of events that are examined for all readers with a filter or a pattern. At
	// least leastLag events are examined for each.
	countedLag = 100_000
	leastLag   = 1_000
	// mostMembers limits the number of members listed per group.
	mostMembers = 1_000
	// leastBehind is the least lag in time from which CatchUp is computed.
	leastBehind = time.Minute
)

// share returns the maximum number of events to examine for each of n readers.
func share(n int) int64 { return int64(max(leastLag, countedLag/max(1, n))) }

// Consumers returns the consumers of all topics and patterns, sorted by topic and name. It includes
// consumers created by other bindings. Consumers logs and omits a consumer whose filter was written by a newer version.
//
// Lags are counted in an index that all consumers of a topic share, up to 200,000 events per call. Later calls on the
// same DB count only the events that are new, and continue a count that was too long. If Lag.More is set, the lag is
// between Lag.N and LagMax. For consumers with a filter, Consumers instead examines up to 100,000 events in total, but
// at least 1,000 per consumer. Events that another program deletes are noticed after at most an hour.
//
// Consumers never waits for the writer. It returns [honker.ErrInvalid] if db is nil.
func Consumers(ctx context.Context, db *honker.DB) ([]ConsumerState, error) {
	var all []ConsumerState
	err := read(ctx, db, func(ctx context.Context, q engine.Querier, _ *engine.Stores) error {
		b, err := newBacklogs(ctx, engine.Of(db), q)
		if err != nil {
			return err
		}
		all, err = b.consumers(ctx)
		return err
	})
	if err != nil {
		return nil, engine.Wrap("list consumers", "", err)
	}
	return all, nil
}

// consumers returns the consumers whose filters are readable.
func (b *backlogs) consumers(ctx context.Context) ([]ConsumerState, error) {
	rows, err := b.engine.Stores.Consumers.List(ctx, b.q, "")
	if err != nil {
		return nil, err
	}
	readable := slices.DeleteFunc(rows, func(c row.Consumer) bool {
		if c.Unreadable != nil {
			b.leftOut("consumer", c.Topic, c.Name, c.Unreadable)
		}
		return c.Unreadable != nil
	})
	return b.describe(ctx, readable, countedEvents)
}

// describe describes consumers. It counts up to most events.
func (b *backlogs) describe(ctx context.Context, all []row.Consumer, most int64) (states []ConsumerState, err error) {
	if len(all) == 0 {
		return nil, nil
	}
	if err := b.findRecent(ctx); err != nil {
		return nil, err
	}
	readers, since := make([]*reader, len(all)), make([]requested, len(all))
	for i, c := range all {
		if readers[i], err = b.reader(ctx, c.Selection(), c.Offset, share(len(all))); err != nil {
			return nil, err
		}
		m, _ := c.Baseline(b.now)
		since[i] = b.want(row.Selection{Topic: c.Topic}, m.Offset)
	}
	if err := b.count(ctx, most, readers...); err != nil {
		return nil, err
	}
	for i, c := range all {
		states = append(states, b.consumer(c, readers[i], since[i]))
	}
	return states, nil
}

// consumer describes a consumer. since is a request for the events above its baseline.
func (b *backlogs) consumer(c row.Consumer, r *reader, since requested) ConsumerState {
	lag := b.lagOf(r)
	out := ConsumerState{Topic: c.Topic, Name: c.Name, Offset: c.Offset, Lag: lag.lag, LagMax: lag.most, Behind: lag.behind,
		CreatedAt: c.CreatedAt, LastAck: c.LastAck, Published: lag.published}
	m, known := c.Baseline(b.now)
	if !known {
		return out
	}
	out.CatchUp, out.FallsBehind = catchUp(c, m, lag.behind, b.now)
	passed, unread := b.of(since), b.of(r.unread)
	if passed.Exact() && unread.Exact() && !b.deletedAbove(since, m.Offset) {
		out.ReadSince = m.At
		out.Read = float64(passed.Least-unread.Least) / b.now.Sub(m.At).Seconds()
	}
	return out
}

// deletedAbove reports whether retention has deleted events above offset in the requested topics.
func (b *backlogs) deletedAbove(r requested, offset int64) bool {
	return slices.ContainsFunc(b.above[r.from:r.to], func(a engine.EventsAbove) bool { return a.Topic.Gone > offset })
}

// catchUp returns the CatchUp and FallsBehind of a consumer that had the mark m and whose first unread event was published
// at behind.
func catchUp(c row.Consumer, m row.Mark, behind, now time.Time) (left time.Duration, falls bool) {
	lag := now.Sub(behind)
	if behind.IsZero() || lag < leastBehind || c.Selection().Pattern() {
		return 0, false
	}
	shrunk := m.Behind - lag
	if shrunk <= 0 {
		return 0, true
	}
	return time.Duration(float64(lag) / float64(shrunk) * float64(now.Sub(m.At))).Truncate(time.Second), false
}

// Groups returns the consumer groups of all topics and patterns, sorted by topic and name. Lag is computed
// as in [Consumers]; Leased, Reclaim and Dead are exact. Up to 1,000 members are listed per group, sorted
// by name. A member that has stopped renewing its membership is listed until another member joins.
//
// Groups never waits for the writer. It returns [honker.ErrInvalid] if db is nil.
func Groups(ctx context.Context, db *honker.DB) ([]GroupState, error) {
	var all []GroupState
	err := read(ctx, db, func(ctx context.Context, q engine.Querier, _ *engine.Stores) error {
		b, err := newBacklogs(ctx, engine.Of(db), q)
		if err != nil {
			return err
		}
		all, err = b.groups(ctx)
		return err
	})
	if err != nil {
		return nil, engine.Wrap("list groups", "", err)
	}
	return all, nil
}

func (b *backlogs) groups(ctx context.Context) (all []GroupState, err error) {
	rows, err := b.engine.Stores.Groups.List(ctx, b.q, "", "")
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	if err := b.findRecent(ctx); err != nil {
		return nil, err
	}
	var readers []*reader
	for _, g := range rows {
		if g.Unreadable != nil {
			b.leftOut("group", g.Topic, g.Name, g.Unreadable)
			continue
		}
		p, err := b.engine.Stores.Groups.Progress(ctx, b.q, g.ID, mostMembers, b.now)
		if err != nil {
			return nil, err
		}
		r, err := b.reader(ctx, g.Selection(), p.Cursor, share(len(rows)))
		if err != nil {
			return nil, err
		}
		readers = append(readers, r)
		all = append(all, GroupState{Topic: g.Topic, Name: g.Name, Cursor: p.Cursor, Leased: p.Leased, Reclaim: p.Back, Dead: p.Dead,
			Members: membersOf(p.Members)})
	}
	if err := b.count(ctx, countedEvents, readers...); err != nil {
		return nil, err
	}
	for i, r := range readers {
		lag := b.lagOf(r)
		all[i].Lag, all[i].LagMax, all[i].Behind, all[i].Published = lag.lag, lag.most, lag.behind, lag.published
	}
	return all, nil
}

func membersOf(rows []row.MemberState) (all []GroupMember) {
	for _, m := range rows {
		all = append(all, GroupMember{Name: m.Name, Instance: m.Instance, Since: m.JoinedAt,
			Until: m.Expires, Leased: m.Leased, LeaseEnd: m.FirstEnd})
	}
	return all
}

// leftOut logs that a consumer or group was omitted from a list.
func (b *backlogs) leftOut(what, topic, name string, err error) {
	b.engine.Logger.Warn("honker: unreadable "+what+" omitted from the list", "topic", topic, what, name, "error", err)
}
