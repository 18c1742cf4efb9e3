package wake

import (
	"hash/fnv"

	"github.com/honker-go/honker/internal/store"
	"github.com/honker-go/honker/internal/watch"
)

// signalRange is the part of the 64 signals that belongs to the keys of one kind. Names share
// the signals of their kind by a hash, so a signal may wake a process for nothing.
//
// Processes of different versions work on one file: what is here must not change.
type signalRange struct{ first, n uint32 }

var signalRanges = [kinds]signalRange{
	QueueReady:     {0, 24},
	TopicEvent:     {24, 15},
	ChannelMessage: {40, 8},
	GroupReturn:    {48, 8},
	LockFree:       {56, 6},
	JobDone:        {62, 1}, // ids are many, and a wait for one is short
	ScheduleDue:    {63, 1},
	// AnyCommit is woken by every look, Closing by none.
}

// signalOfPatterns is what waiters for a pattern of topics wait for.
const signalOfPatterns watch.Signals = 1 << 39

// signalsOf is what a waiter for k waits for, and what a commit for k raises.
func signalsOf(k Key) watch.Signals {
	r := signalRanges[k.Kind]
	if r.n == 0 {
		return 0
	}
	if k.Kind == TopicEvent && (store.Selection{Topic: k.Name}).Pattern() {
		return signalOfPatterns
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(k.Name))
	return 1 << (r.first + h.Sum32()%r.n)
}

// raisedBy is signalsOf for the other side: a topic may match patterns as well.
func raisedBy(k Key) watch.Signals {
	if k.Kind == TopicEvent {
		return signalsOf(k) | signalOfPatterns
	}
	return signalsOf(k)
}

// signalsOfKind are those of all keys of a kind.
func signalsOfKind(kind Kind) watch.Signals {
	r := signalRanges[kind]
	set := (watch.Signals(1)<<r.n - 1) << r.first
	if kind == TopicEvent {
		set |= signalOfPatterns
	}
	return set
}

// isLog tells whether what a kind waits for is read from a table that only grows.
func (k Kind) isLog() bool { return k == ChannelMessage || k == TopicEvent }
