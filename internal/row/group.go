package row

// Delivery is an event claimed by a member of a group.
type Delivery struct {
	Event
	Token    int64 // epoch of the group at the claim
	Attempts int64 // claims of this event so far, including this claim
}

// Holding identifies a claim of an event. It fences every settle: after its lease has ended, a
// member cannot change the event.
type Holding struct {
	Group  int64
	Offset int64
	Token  int64
}

// GroupClaim is a request of a member for events.
type GroupClaim struct {
	Member      Member
	N           int   // maximum number of events
	MaxAttempts int64 // 0 means no limit
	ExpiresMS   int64 // end of the leases
}

// GroupDeath is an event that was dead-lettered because no member had settled it.
type GroupDeath struct{ Offset, Attempts int64 }

// DeadDelivery is an event in the dead letters of a group.
type DeadDelivery struct {
	Event
	Attempts  int64
	LastError string
	DiedMS    int64
}

// Group is a consumer group.
type Group struct {
	ID     int64
	Topic  string // topic or pattern
	Name   string
	Cursor int64   // highest offset that has been delivered
	Epoch  int64   // fencing token; it increases with each claim and each return
	Filter *Filter // nil for all events

	// Unreadable is the error from decoding the filter, or nil. A group with an unreadable filter
	// must not be used, because it would deliver events that the filter excludes.
	Unreadable error
}

// Selection returns the events that the group reads.
func (g Group) Selection() Selection { return Selection{Topic: g.Topic, Filter: g.Filter} }

// Member identifies a membership of a group. Instance distinguishes processes that use the same
// name, whether at the same time or in turn.
type Member struct {
	Group    int64
	Name     string
	Instance string
}

// MemberState is a member of a group and the number of its leases.
type MemberState struct {
	Name, Instance      string
	JoinedMS, ExpiresMS int64
	Leased              int64
	FirstMS             int64 // end of the lease that ends first; 0 if the member has no lease
}

// Counts holds the numbers of events that a group has delivered but not acked.
type Counts struct {
	Leased, Back, Dead int64 // leased by a member; returned and waiting; dead-lettered
	Cursor             int64
	LowWater           int64 // every event up to this offset is acked or dead
}

// GroupState reports whether a claim would find a returned event, and otherwise when. It ignores
// new events, because their topic already wakes the members.
type GroupState struct {
	ID     int64
	Ready  bool
	NextMS int64 // 0 if no event will be returned
}
