package wake

import (
	"hash/fnv"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/watch"
)

// signalRange is the part of the 64 signals that belongs to the keys of one kind. Names share
// the signals of their kind by a hash, so a signal may wake a process for nothing.
//
// Processes of different versions work on one file: what is here must not change.
type signalRange struct{ first, n uint32 }

var signalRanges = [kinds]signalRange{
	QueueReady:     {0, 20},
	JobDone:        {20, 8},
	RelayReady:     {28, 4},
	TopicEvent:     {32, 15},
	ChannelMessage: {48, 7},
	GroupReturn:    {55, 5},
	LockFree:       {60, 3},
	ScheduleDue:    {63, 1},
	// AnyCommit is woken by every look, Closing by none.
}

// signalOfPatterns is what waiters for a pattern of topics wait for.
const signalOfPatterns watch.Signals = 1 << 47

// signalsOf is what the waiters for name wait for.
func signalsOf(kind Kind, name string) watch.Signals {
	r := signalRanges[kind]
	if r.n == 0 {
		return 0
	}
	if kind == TopicEvent && (row.Selection{Topic: name}).Pattern() {
		return signalOfPatterns
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(name))
	return 1 << (r.first + h.Sum32()%r.n)
}

// raisedBy is what a commit for name raises: a topic may match patterns as well.
func raisedBy(kind Kind, name string) watch.Signals {
	if kind == TopicEvent {
		return signalsOf(kind, name) | signalOfPatterns
	}
	return signalsOf(kind, name)
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
