package row

import "time"

// DispatchPart is a part of the schema of dispatch. Each part is created when it is first needed.
type DispatchPart int

// The parts of the schema of dispatch.
const (
	DispatchTables  DispatchPart = iota // tables, needed by every use
	DispatchLife                        // triggers that record the life of the sent jobs
	DispatchLegacy                      // triggers for copies in legacy queues
	DispatchReplies                     // triggers for jobs with a reply queue or topic
)

// DispatchPrefix is the default prefix of dispatch keys.
const DispatchPrefix = "hero:"

// DispatchPresence is a taken name of an actor. Fields without a value are zero, since other programs
// write presences too.
type DispatchPresence struct {
	Key       string    // name of the actor
	Owner     string    // running actor that holds the name
	ExpiresAt time.Time // rounded up to milliseconds

	PID           int
	Hostname      string
	StartedAt     time.Time
	Version       string
	Capabilities  []string
	LastHeartbeat time.Time
	InFlight      int  // tasks being handled
	Busy          bool // all its workers have a task
	Paused        bool // it claims no tasks
}

// Sent is a job sent by dispatch.
type Sent struct {
	ID         int64
	Queue      string
	Events     string // topic of its log; "" if none
	ReplyQueue string // queue for its outcome; "" if none
	ReplyTopic string // topic for its outcome; "" if none
}

// DispatchStatus is the recorded state of a job sent by dispatch.
type DispatchStatus struct {
	RunID     int64 // job that runs in place of the job sent; the same id unless a copy was claimed
	Queue     string
	SentAt    time.Time
	StartedAt time.Time // start of the last attempt; zero if there was none
	EndedAt   time.Time // zero if the job has not ended
	Stopped   bool
	HeldUntil time.Time // with Stopped: end of the claim that was held at the stop; zero if none was or its handler has returned

	State     string // state of the live job; "" if there is none
	Attempts  int64
	Worker    string // worker that has claimed the job; "" if none
	LastError string
	Dead      bool
	Output    []byte // saved result as stored; nil if there is none
	Twins     bool   // copies of the job wait in legacy queues

	Reply DispatchReply
}

// DispatchReply is a reply of a worker to a job that has no Output.
type DispatchReply struct {
	Queue   string // queue that holds the reply; "" if there is none
	Payload []byte // as stored; nil if another program has stored a number or NULL
	Text    bool   // the payload is stored as text, as honker does, and not as bytes
}

// DispatchCopy is a live job that stands for a job sent by dispatch.
type DispatchCopy struct {
	ID     int64
	Queue  string
	Worker string // worker that holds a valid claim; "" if none
}

// DispatchLoad is the number of jobs in a queue.
type DispatchLoad struct {
	Queue    string
	Depth    int64     // pending jobs
	InFlight int64     // running jobs
	Oldest   time.Time // enqueue time of the oldest pending job; zero if none waits
}

// DispatchOccupancy describes how busy actors are.
type DispatchOccupancy struct {
	Waiting map[string]int // pending jobs by queue, up to a thousand
	Workers []string       // worker of each running job; a worker appears once for each of its jobs
}
