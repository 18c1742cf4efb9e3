package admin

import (
	"context"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// ConsumerState describes the progress of a consumer of events.
type ConsumerState struct {
	Topic     string // or the pattern the consumer reads
	Name      string
	Offset    int64        // last handled event
	Lag       honker.Count // unhandled events that match the filter of the consumer
	Behind    time.Time    // publication time of the oldest unhandled event; zero if none was counted
	CreatedAt time.Time    // zero if another binding created the consumer
	LastAck   time.Time    // last time the offset was saved; zero if never, or if another binding saved it
}

// GroupState describes the progress of a consumer group.
type GroupState struct {
	Topic   string // or the pattern the group reads
	Name    string
	Cursor  int64        // last event given to a member
	Lag     honker.Count // events after Cursor that match the filter of the group
	Behind  time.Time    // publication time of the oldest event in Lag; zero if none was counted
	Leased  int64        // events that members hold
	Reclaim int64        // returned events that wait for a member
	Dead    int64        // events without an attempt left
	Members []GroupMember
}

// GroupMember is a member of a consumer group. The file does not record whether its process is alive. A
// member must renew its membership, which it does every third of its Lease.
type GroupMember struct {
	Name     string
	Instance string    // process that uses the name, as in errors
	Since    time.Time // when it joined
	Until    time.Time // end of the membership unless it is renewed; in the past for a silent member
	Leased   int64     // events the member holds
	LeaseEnd time.Time // earliest end of these leases unless they are extended; zero if it holds none
}

const (
	// countedLag bounds the events counted for all consumers or groups together. Each of them is counted up
	// to leastLag in any case.
	countedLag = 100_000
	leastLag   = 1_000
	// mostMembers bounds the listed members of a group.
	mostMembers = 1_000
)

// share returns the number of events to count for each of n consumers.
func share(n int) int64 { return int64(max(leastLag, countedLag/max(1, n))) }

// Consumers returns the consumers of all topics and patterns by topic and name, including consumers of
// other bindings. Their lag is counted among the next 100,000 events for all consumers together, but at
// least among the next 1,000 events of each. Lag.More reports that there may be further events. A consumer
// whose filter was written by a newer version is logged and omitted.
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

// Groups returns the groups of all topics and patterns by topic and name. It counts Lag as [Consumers]
// does; Leased, Reclaim and Dead are exact. Up to 1,000 members of each group are listed by name. A silent
// member is listed until another member joins.
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
			state, err := stateOf(ctx, q, s, row, share(len(rows)))
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

func stateOf(ctx context.Context, q engine.Querier, s *engine.Stores, row row.Group, most int64) (GroupState, error) {
	p, err := s.Groups.Progress(ctx, q, row.ID, mostMembers, time.Now())
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
