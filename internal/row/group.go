package row

import "time"

// Delivery is an event claimed by a member of a group.
type Delivery struct {
	Event
	Token    int64 // the group's epoch when the event was claimed
	Attempts int64 // claims of this event so far, including this claim
}

// Holding identifies a claim on an event. It fences all settling: once its lease has ended, a member can't change the
// event.
type Holding struct {
	Group  int64
	Offset int64
	Token  int64
}

// GroupClaim is a member's request for events.
type GroupClaim struct {
	Member      Member
	N           int       // maximum number of events
	MaxAttempts int       // number of claims after which an event is dead instead of returned; 0 means no limit
	Expires     time.Time // end of the leases, rounded up to the database's resolution
}

// GroupClaimed is the result of a GroupClaim.
type GroupClaimed struct {
	Events []Delivery   // new events first, in order
	Dead   []GroupDeath // events that the claim dead-lettered because their leases had lapsed
	More   bool         // another claim may find events immediately
}

// GroupSettlement ends an event's lease. The group is done with the event or gets it back.
type GroupSettlement struct {
	Holding
	Back        bool      // the event was not handled; the fields below apply
	Ready       time.Time // when it can be claimed again, rounded up to the database's resolution
	MaxAttempts int       // the event is dead if it was claimed this many times; 0 means no limit
	Cause       string    // stored as the last error; "" if none
}

// GroupSettled is the outcome of a GroupSettlement.
type GroupSettled struct {
	Held bool // the lease was valid; otherwise nothing changed
	Died bool // the event was dead-lettered
}

// GroupDeath is an event that was dead-lettered because no member had settled it.
type GroupDeath struct{ Offset, Attempts int64 }

// DeadDelivery is one of a group's dead letters.
type DeadDelivery struct {
	Event
	Attempts  int64
	LastError string
	DiedAt    time.Time
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

// Selection returns the group's selection of events.
func (g Group) Selection() Selection { return Selection{Topic: g.Topic, Filter: g.Filter} }

// Member identifies a group member. Instance distinguishes processes that use the same name,
// whether at the same time or one after another.
type Member struct {
	Group    int64
	Name     string
	Instance string
}

// GroupJoin is a request to enter a group, which is created if it does not exist.
type GroupJoin struct {
	Topic, Name string    // the group's topic or pattern, and its name
	Filter      *Filter   // the group's filter from now on; nil for all events
	From        Position  // where a new group begins; the filter is ignored
	Member      Member    // Group is ignored
	Expires     time.Time // end of the membership, rounded up to the database's resolution
}

// GroupJoined is the result of a GroupJoin.
type GroupJoined struct {
	Group int64 // ID of the group
	Start Start // where the new group begins; zero if the group existed
	Membership
}

// Membership is the state of a member's name after an attempt to take or renew it.
type Membership struct {
	Kept    bool      // the name belongs to the instance that asked for it
	Holder  string    // unless Kept: the other instance that has the name; "" if unknown
	Expires time.Time // end of Holder's membership
}

// MemberState describes a group member and the leases it holds.
type MemberState struct {
	Name, Instance    string
	JoinedAt, Expires time.Time
	Expired           bool // the name is available to other instances
	Leased            int64
	FirstEnd          time.Time // end of the first lease to expire; zero if the member has no lease
}

// GroupProgress describes a group's position and the state of its events.
type GroupProgress struct {
	Counts
	Members []MemberState // by name
}

// Counts holds counts of the events that were delivered to a group but are not acked.
type Counts struct {
	Leased, Back, Dead int64 // leased by a member; returned and waiting; dead-lettered
	Cursor             int64
	LowWater           int64 // every event up to this offset is acked or dead
}

// GroupState tells whether a claim would find events and, if not, when it may.
type GroupState struct {
	ID    int64
	Ready bool
	Next  time.Time // when a leased or returned event may become claimable; zero if there is none
}
