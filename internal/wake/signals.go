package wake

import (
	"hash/fnv"

	"github.com/honker-go/honker/internal/row"
)

// signalRange is the range of the 64 signals that belongs to a kind. A hash maps a kind's names to its signals, so a
// signal may wake a process unnecessarily.
//
// These values must never change, because processes of different versions may work on the same
// file.
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
	// Every check wakes AnyCommit, and no check wakes Closing.
}

// signalOfPatterns is the signal for waiters of topic patterns.
const signalOfPatterns Signals = 1 << 47

// signalsOf returns the signals that waiters for name wait for.
func signalsOf(kind Kind, name string) Signals {
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

// raisedBy returns the signals that are raised by a commit that changes name. A topic may match patterns as well.
func raisedBy(kind Kind, name string) Signals {
	if kind == TopicEvent {
		return signalsOf(kind, name) | signalOfPatterns
	}
	return signalsOf(kind, name)
}

// signalsOfKind returns the signals of all keys of the given kind.
func signalsOfKind(kind Kind) Signals {
	r := signalRanges[kind]
	set := (Signals(1)<<r.n - 1) << r.first
	if kind == TopicEvent {
		set |= signalOfPatterns
	}
	return set
}

// SignalsOf returns the signals that a commit with the given changes raises.
func SignalsOf(changes ...Change) (set Signals) {
	for _, c := range changes {
		set |= raisedBy(c.Kind, c.Name)
	}
	return set
}

// KindSignals returns the signals of all names of a kind.
func KindSignals(kind Kind) Signals { return signalsOfKind(kind) }

// isLog reports whether events of kind k are read from an append-only table.
func (k Kind) isLog() bool { return k == ChannelMessage || k == TopicEvent }

// Signals is a set of signals. A waiter waits for some of them, and a process that commits a change for other
// processes raises theirs, so that a busy process is woken only by commits that it is waiting for. The caller defines
// the meaning of each signal, which must be the same in all processes.
type Signals uint64

// AllSignals is passed to Changed for a check that wasn't caused by a signal.
const AllSignals = ^Signals(0)
