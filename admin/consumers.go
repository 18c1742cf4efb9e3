package admin

import (
	"context"
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
	Behind    time.Time    // when the oldest unhandled event was published; zero if no event was counted
	CreatedAt time.Time    // zero if another binding created the consumer
	LastAck   time.Time    // when the offset was last saved; zero if it was never saved or was saved by another binding
}

// GroupState describes the progress of a consumer group.
type GroupState struct {
	Topic   string // or the pattern the group reads
	Name    string
	Cursor  int64        // offset of the last event delivered to a member
	Lag     honker.Count // events after Cursor that match the group's filter
	Behind  time.Time    // when the oldest event in Lag was published; zero if no event was counted
	Leased  int64        // events leased by members
	Reclaim int64        // returned events waiting for redelivery
	Dead    int64        // events with no attempts left
	Members []GroupMember
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
	// countedLag limits the total number of events counted for all consumers or groups. At least leastLag
	// events are counted for each.
	countedLag = 100_000
	leastLag   = 1_000
	// mostMembers limits the number of members listed per group.
	mostMembers = 1_000
)

// share returns the maximum number of events to count for each of n consumers.
func share(n int) int64 { return int64(max(leastLag, countedLag/max(1, n))) }

// Consumers returns the consumers of all topics and patterns, sorted by topic and name. It includes
// consumers created by other bindings. To compute lags, Consumers examines up to 100,000 events in total,
// but at least 1,000 per consumer. If Lag.More is set, there may be more events. Consumers logs and omits
// a consumer whose filter was written by a newer version.
//
// Consumers never waits for the writer. It returns [honker.ErrInvalid] if db is nil.
func Consumers(ctx context.Context, db *honker.DB) ([]ConsumerState, error) {
	var all []ConsumerState
	err := read(ctx, db, func(ctx context.Context, q engine.Querier, s *engine.Stores) error {
		all = nil
		rows, err := s.Consumers.List(ctx, q, "")
		if err != nil {
			return err
		}
		for _, row := range rows {
			if row.Unreadable != nil {
				leftOut(db, "consumer", row.Topic, row.Name, row.Unreadable)
				continue
			}
			ahead, err := s.Streams.Ahead(ctx, q, row.Selection(), row.Offset, share(len(rows)))
			if err != nil {
				return err
			}
			all = append(all, ConsumerState{
				Topic: row.Topic, Name: row.Name, Offset: row.Offset,
				Lag: honker.Count(ahead.Count), Behind: ahead.FirstAt,
				CreatedAt: row.CreatedAt, LastAck: row.LastAck,
			})
		}
		return nil
	})
	if err != nil {
		return nil, engine.Wrap("list consumers", "", err)
	}
	return all, nil
}

// Groups returns the consumer groups of all topics and patterns, sorted by topic and name. Lag is computed
// as in [Consumers]; Leased, Reclaim and Dead are exact. Up to 1,000 members are listed per group, sorted
// by name. A member that has stopped renewing its membership is listed until another member joins.
//
// Groups never waits for the writer. It returns [honker.ErrInvalid] if db is nil.
func Groups(ctx context.Context, db *honker.DB) ([]GroupState, error) {
	var all []GroupState
	err := read(ctx, db, func(ctx context.Context, q engine.Querier, s *engine.Stores) error {
		all = nil
		rows, err := s.Groups.List(ctx, q, "", "")
		if err != nil {
			return err
		}
		for _, row := range rows {
			if row.Unreadable != nil {
				leftOut(db, "group", row.Topic, row.Name, row.Unreadable)
				continue
			}
			state, err := stateOf(ctx, q, s, row, clock(db), share(len(rows)))
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

func stateOf(ctx context.Context, q engine.Querier, s *engine.Stores, row row.Group, now time.Time, most int64) (GroupState, error) {
	p, err := s.Groups.Progress(ctx, q, row.ID, mostMembers, now)
	if err != nil {
		return GroupState{}, err
	}
	ahead, err := s.Streams.Ahead(ctx, q, row.Selection(), p.Cursor, most)
	return GroupState{
		Topic: row.Topic, Name: row.Name, Cursor: p.Cursor,
		Lag: honker.Count(ahead.Count), Behind: ahead.FirstAt,
		Leased: p.Leased, Reclaim: p.Back, Dead: p.Dead, Members: membersOf(p.Members),
	}, err
}

func membersOf(rows []row.MemberState) (all []GroupMember) {
	for _, m := range rows {
		all = append(all, GroupMember{Name: m.Name, Instance: m.Instance, Since: m.JoinedAt,
			Until: m.Expires, Leased: m.Leased, LeaseEnd: m.FirstEnd})
	}
	return all
}

// leftOut logs that a consumer or group was omitted from a list.
func leftOut(db *honker.DB, what, topic, name string, err error) {
	engine.Of(db).Logger.Warn("honker: unreadable "+what+" omitted from the list", "topic", topic, what, name, "error", err)
}
