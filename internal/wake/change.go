package wake

import "strconv"

// Change is a change made by a commit, which goroutines may be waiting for.
type Change struct {
	Kind     Kind
	Name     string
	EventKey string // with TopicEvent: the event's key, or "" if it has none
}

// Queue returns the change that announces a claimable job in a queue.
func Queue(name string) Change { return Change{Kind: QueueReady, Name: name} }

// Message returns the change that announces a channel message.
func Message(channel string) Change { return Change{Kind: ChannelMessage, Name: channel} }

// Job returns the change that announces a job's result or its end.
func Job(id int64) Change { return Change{Kind: JobDone, Name: strconv.FormatInt(id, 10)} }

// Event returns the change that announces an event in a topic. key is "" for an event without a key.
func Event(topic, key string) Change { return Change{Kind: TopicEvent, Name: topic, EventKey: key} }

// Group returns the change that announces an event returned to a group.
func Group(id string) Change { return Change{Kind: GroupReturn, Name: id} }

// Lock returns the change that announces a released lock.
func Lock(name string) Change { return Change{Kind: LockFree, Name: name} }

// Schedules returns the change that announces schedules that may fire earlier.
func Schedules() Change { return Change{Kind: ScheduleDue} }

// Relay returns the change that announces a partition of a relay's queue that can be taken. See RelayName.
func Relay(name string) Change { return Change{Kind: RelayReady, Name: name} }
