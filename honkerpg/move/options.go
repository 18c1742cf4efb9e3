package move

import (
	"errors"
	"fmt"

	"github.com/honker-go/honker/internal/engine"
)

// Options configures a move. The zero value moves everything.
type Options struct {
	// Queues and Topics are the queues and topics to move. If both are nil, all are moved, and relays too. If only Queues or
	// only Topics is set, nothing of the other kind is moved. The settings and schedules of a queue, and the readers and the retention
	// of a topic, go along. Schedules do not outlive the first pass in the file: the target fires them.
	Queues, Topics []string

	// Once returns after a single pass. The default is to go on until a pass finds nothing to move, and no job of the
	// queues runs in the file.
	Once bool

	// IntoUsed allows a target that has jobs or events already. The IDs of moved jobs and the offsets of events then
	// differ from those in the file.
	IntoUsed bool

	// DryRun writes nothing, so both databases may be opened with ReadOnly. It reports the jobs and events in the file. The
	// target may be nil if its schema does not exist yet.
	DryRun bool

	// Progress is called when the move has begun, about once a second, and after each pass. It may be nil.
	Progress func(Report)
}

// normal returns the options with their defaults, and the selected names: nil is all, and empty is none.
func (o *Options) normal() (out Options, err error) {
	if o != nil {
		out = *o
	}
	for _, q := range out.Queues {
		err = errors.Join(err, engine.CheckName("queue name", q))
	}
	for _, t := range out.Topics {
		err = errors.Join(err, engine.CheckName("topic", t))
	}
	if out.Queues == nil && out.Topics != nil {
		out.Queues = []string{}
	}
	if out.Topics == nil && out.Queues != nil && len(out.Queues) > 0 {
		out.Topics = []string{}
	}
	if out.Progress == nil {
		out.Progress = func(Report) {}
	}
	return out, err
}

// Report counts the rows that a move has moved, or would move.
type Report struct {
	Passes    int   // that have ended
	Jobs      int64 // live jobs
	Dead      int64
	Batches   int64
	Schedules int64
	Events    int64
	// Late is the number of events that were published in the file after their topic had events of the target. They
	// have new offsets, so consumers of the target see them after the others, and those that had read them in the
	// file see them again.
	Late int64

	Messages     int64 // of relays
	LateMessages int64 // messages that come after messages of the target, as handlers have had some of these
	Letters      int64 // dead letters of relays

	Left   []Left      // queues that have jobs or schedules in the file
	Relays []LeftRelay // queues of relays in the file
	Lost   []Lost      // jobs whose unique key was taken; the first hundred
	Notes  []string    // reasons why jobs and relays stay in the file, and other remarks
}

// Left counts the jobs of a queue in the file.
type Left struct {
	Queue     string
	Waiting   int64
	Running   int64
	Dead      int64
	Done      int64 // done jobs are not moved
	Schedules int64
}

// LeftRelay counts the messages that a relay's queue has in the file.
type LeftRelay struct {
	Family, Queue string
	Waiting       int64 // messages
	Leased        int64 // partitions with running handlers
	Dead          int64
}

// Lost is a job of the file whose unique key is held by a job of the target.
type Lost struct {
	Queue, Key string
	ID         int64 // of the job in the file
	By         int64 // the job of the target
	// Dropped is set if the job was dropped, as by an enqueue with that key. Otherwise it has links or failed attempts,
	// and was moved without its key.
	Dropped bool
}

// lostMost limits the lists of a Report.
const lostMost = 100

func (r *Report) note(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	for _, n := range r.Notes {
		if n == text {
			return
		}
	}
	if len(r.Notes) < lostMost {
		r.Notes = append(r.Notes, text)
	}
}
