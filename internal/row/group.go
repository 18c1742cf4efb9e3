package row

// Delivery is an event that a member of a group holds.
type Delivery struct {
	Event
	Token    int64 // the group's epoch at the claim
	Attempts int64 // claims of this event so far, this one included
}

// Holding names one claim of one event. Every settle is fenced by it: after the end of its
// lease a member changes nothing.
type Holding struct {
	Group  int64
	Offset int64
	Token  int64
}

// GroupClaim is what a member asks for.
type GroupClaim struct {
	Member      Member
	N           int
	MaxAttempts int64 // 0: no bound
	ExpiresMS   int64
}

// GroupDeath is an event that was dead-lettered since no member has settled it.
type GroupDeath struct{ Offset, Attempts int64 }

// DeadDelivery is an event that a group has dead-lettered.
type DeadDelivery struct {
	Event
	Attempts  int64
	LastError string
	DiedMS    int64
}

// Group is a row of _honkerx_groups.
type Group struct {
	ID     int64
	Topic  string // or a pattern
	Name   string
	Cursor int64 // events up to here have been given out
	Epoch  int64 // the fencing token: it rises with each claim and each return
	Filter *Filter

	// Unreadable is why the filter cannot be read. Without it the group would give out what it
	// is not to, so it cannot be used.
	Unreadable error
}

// Selection is what the group reads.
func (g Group) Selection() Selection { return Selection{Topic: g.Topic, Filter: g.Filter} }

// Member names one membership. Instance tells apart two processes that use the same name,
// at the same time or one after the other.
type Member struct {
	Group    int64
	Name     string
	Instance string
}

// MemberState is a member of a group, and what it holds.
type MemberState struct {
	Name, Instance      string
	JoinedMS, ExpiresMS int64
	Leased              int64
	FirstMS             int64 // when the first of its leases ends; 0: it has none
}

// Counts are the numbers of events that a group has given out and that are not acked.
type Counts struct {
	Leased, Back, Dead int64 // held by a member, waiting to be claimed again, dead-lettered
	Cursor             int64
	LowWater           int64 // all up to here are acked, or dead
}

// GroupState says whether a claim of a group would find a returned event, and when it will
// otherwise. It does not look at fresh events: those wake a member by their topic.
type GroupState struct {
	ID     int64
	Ready  bool
	NextMS int64 // 0: nothing will come back
}
