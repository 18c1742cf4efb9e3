package admin

import (
	"context"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/store"
)

// ConsumerState is how far a consumer of events has come.
type ConsumerState struct {
	Topic     string // or the pattern that it reads
	Name      string
	Offset    int64        // everything up to here is handled
	Lag       honker.Count // events that it has yet to see; what its filter leaves out does not count
	Behind    time.Time    // when the first of them was published; zero: there is none, or none was counted
	CreatedAt time.Time    // zero: another binding has made it
	LastAck   time.Time    // when the offset was last saved; zero: never, or by another binding
}

// GroupState is how far a group of consumers has come.
type GroupState struct {
	Topic   string // or the pattern that it reads
	Name    string
	Cursor  int64        // events up to here have been given out
	Lag     honker.Count // events above it; what the group's filter leaves out does not count
	Behind  time.Time    // when the first of them was published; zero: there is none, or none was counted
	Leased  int64        // events that members hold
	Reclaim int64        // events that came back and wait for a member
	Dead    int64        // events that have spent their attempts
	Members []GroupMember
}

// GroupMember is a member of a group. The file does not say whether its process lives: a member is to say itself that it
// is there, in a third of its Lease.
type GroupMember struct {
	Name     string
	Instance string    // which process has the name, as errors tell it
	Since    time.Time // when it joined
	Until    time.Time // a member until then, unless it says before that it is there; one of the past is silent
	Leased   int64     // events that it holds
	LeaseEnd time.Time // when the first of these leases ends, unless it is extended; zero: it holds none
}

// streamStore are the statements about events, for what has yet to be seen.
type streamStore interface {
	Ahead(ctx context.Context, q engine.Querier, s row.Selection, after int64, most int) (row.Ahead, error)
}

// consumerStore are those about consumers.
type consumerStore interface {
	All(ctx context.Context, q engine.Querier) ([]row.Consumer, error)
}

// groupStore are those about groups.
type groupStore interface {
	All(ctx context.Context, q engine.Querier) ([]row.Group, error)
	Counts(ctx context.Context, q engine.Querier, group, nowMS int64) (row.Counts, error)
	MemberStates(ctx context.Context, q engine.Querier, group, nowMS int64, limit int) ([]row.MemberState, error)
}

var (
	streams   streamStore   = store.Streams{}
	consumers consumerStore = store.Consumers{}
	groups    groupStore    = store.Groups{}
)

const (
	// countedLag is how many events are looked at, for all consumers or groups together, as long as
	// each gets its least.
	countedLag = 100_000
	leastLag   = 1_000
	// mostMembers bounds what is listed of a group.
	mostMembers = 1_000
)

// share is how far the lag of each of n is counted.
func share(n int) int { return max(leastLag, countedLag/max(1, n)) }

// Consumers returns the consumers of all topics and patterns, by topic and name, those of other
// bindings included. What they have yet to see is counted among the next 100,000 events, for all
// consumers together, and the next 1,000 of each at least; Lag.More says that there may be others.
// A consumer with a filter that a newer version has written is left out, which is logged. It never
// waits for the writer. nil as the DB is [honker.ErrInvalid].
func Consumers(ctx context.Context, db *honker.DB) ([]ConsumerState, error) {
	var all []ConsumerState
	err := read(ctx, db, func(ctx context.Context, q engine.Querier) error {
		all = nil
		rows, err := consumers.All(ctx, q)
		if err != nil {
			return err
		}
		for _, row := range rows {
			if row.Unreadable != nil {
				leftOut(db, "consumer", row.Topic, row.Name, row.Unreadable)
				continue
			}
			ahead, err := streams.Ahead(ctx, q, row.Selection(), row.Offset, share(len(rows)))
			if err != nil {
				return err
			}
			all = append(all, ConsumerState{
				Topic: row.Topic, Name: row.Name, Offset: row.Offset,
				Lag: honker.Count(ahead.Count), Behind: engine.Instant(ahead.FirstAt),
				CreatedAt: engine.InstantMS(row.CreatedMS), LastAck: engine.InstantMS(row.LastAckMS),
			})
		}
		return nil
	})
	if err != nil {
		return nil, engine.Wrap("list consumers", "", err)
	}
	return all, nil
}

// Groups returns the groups of all topics and patterns, by topic and name. Lag is counted as by
// [Consumers]; what members hold, what came back and what is dead is counted whole. Of each group up to 1,000
// members are listed, by name, a silent one until another joins. It never waits for the writer. nil as the DB is [honker.ErrInvalid].
func Groups(ctx context.Context, db *honker.DB) ([]GroupState, error) {
	var all []GroupState
	err := read(ctx, db, func(ctx context.Context, q engine.Querier) error {
		all = nil
		rows, err := groups.All(ctx, q)
		if err != nil {
			return err
		}
		for _, row := range rows {
			if row.Unreadable != nil {
				leftOut(db, "group", row.Topic, row.Name, row.Unreadable)
				continue
			}
			state, err := stateOf(ctx, q, row, share(len(rows)))
			if err != nil {
				return err
			}
			all = append(all, state)
		}
		return nil
	})
	if err != nil {
		return nil, engine.Wrap("list groups", "", err)
	}
	return all, nil
}

func stateOf(ctx context.Context, q engine.Querier, row row.Group, most int) (GroupState, error) {
	now := time.Now().UnixMilli()
	counts, err := groups.Counts(ctx, q, row.ID, now)
	if err != nil {
		return GroupState{}, err
	}
	members, err := groups.MemberStates(ctx, q, row.ID, now, mostMembers)
	if err != nil {
		return GroupState{}, err
	}
	ahead, err := streams.Ahead(ctx, q, row.Selection(), counts.Cursor, most)
	return GroupState{
		Topic: row.Topic, Name: row.Name, Cursor: counts.Cursor,
		Lag: honker.Count(ahead.Count), Behind: engine.Instant(ahead.FirstAt),
		Leased: counts.Leased, Reclaim: counts.Back, Dead: counts.Dead, Members: membersOf(members),
	}, err
}

func membersOf(rows []row.MemberState) (all []GroupMember) {
	for _, m := range rows {
		all = append(all, GroupMember{Name: m.Name, Instance: m.Instance, Since: engine.InstantMS(m.JoinedMS),
			Until: engine.InstantMS(m.ExpiresMS), Leased: m.Leased, LeaseEnd: engine.InstantMS(m.FirstMS)})
	}
	return all
}

// leftOut logs what a list lacks.
func leftOut(db *honker.DB, what, topic, name string, err error) {
	engine.Of(db).Logger.Warn("honker: a "+what+" left out of the list", "topic", topic, what, name, "error", err)
}
