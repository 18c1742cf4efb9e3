package wake

import "strconv"

// Change is an event that a commit has caused.
type Change struct {
	Kind     Kind
	Name     string
	EventKey string // with TopicEvent: the key of the event, "" if it has none
}

// Queue returns the change that announces a claimable job of a queue.
func Queue(name string) Change { return Change{Kind: QueueReady, Name: name} }

// Message returns the change that announces a message on a channel.
func Message(channel string) Change { return Change{Kind: ChannelMessage, Name: channel} }

// Job returns the change that announces a result or the end of a job.
func Job(id int64) Change { return Change{Kind: JobDone, Name: strconv.FormatInt(id, 10)} }

// Event returns the change that announces an event of a topic. key is "" for an event without a key.
func Event(topic, key string) Change { return Change{Kind: TopicEvent, Name: topic, EventKey: key} }

// Group returns the change that announces an event that came back to a group.
func Group(id string) Change { return Change{Kind: GroupReturn, Name: id} }

// Lock returns the change that announces the end of a lock.
func Lock(name string) Change { return Change{Kind: LockFree, Name: name} }

// Relay returns the change that announces a partition of a relay's queue that can be taken. See RelayName.
func Relay(name string) Change { return Change{Kind: RelayReady, Name: name} }
