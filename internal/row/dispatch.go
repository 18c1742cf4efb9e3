package row

import "time"

// DispatchPart is a part of package dispatch's schema. A part is created when it is first needed.
type DispatchPart int

// The parts of package dispatch's schema.
const (
	DispatchTables  DispatchPart = iota // tables, needed by every use
	DispatchLife                        // triggers that record the life cycle of sent jobs
	DispatchLegacy                      // triggers for copies in legacy queues
	DispatchReplies                     // triggers for jobs with a reply queue or topic
)

// DispatchPrefix is the default prefix of dispatch keys.
const DispatchPrefix = "hero:"

// Parts of the names of reply queues, between the prefix and the ID of the job.
const (
	DispatchReplyQueue       = "q:reply:"
	DispatchLegacyReplyQueue = "reply:"
)

// The commands to actors that operators send too. A command is an event in a control topic.
const (
	DispatchStop   = "stop"
	DispatchPause  = "pause"
	DispatchResume = "resume"

	DispatchControlAge = time.Hour // retention of control topics
)

// DispatchPresence is an actor's claim on its name. A field is zero if its value is missing or unreadable, because
// other programs write presences too.
type DispatchPresence struct {
	Key       string    // actor name
	Owner     string    // running actor that holds the name
	ExpiresAt time.Time // rounded up to milliseconds

	PID           int
	Hostname      string
	StartedAt     time.Time
	Version       string
	Capabilities  []string
	LastHeartbeat time.Time
	InFlight      int  // tasks being handled
	Busy          bool // all workers have a task
	Paused        bool // the actor claims no tasks
}

// Sent is a job sent with package dispatch.
type Sent struct {
	ID         int64
	Queue      string
	Events     string // topic of its event log; "" if none
	ReplyQueue string // queue for its outcome; "" if none
	ReplyTopic string // topic for its outcome; "" if none
}

// DispatchStatus is the recorded state of a job sent with package dispatch.
type DispatchStatus struct {
	RunID     int64 // job that runs in place of the sent job; the same ID unless a copy was claimed
	Queue     string
	SentAt    time.Time
	StartedAt time.Time // start of the last attempt; zero if there was none
	EndedAt   time.Time // zero if the job has not ended
	Stopped   bool
	HeldUntil time.Time // for a stopped job: end of the claim that it had when it was stopped; zero if it had none or its handler has returned

	State     string // state of the live job; "" if there is none
	Attempts  int64
	Worker    string // worker that holds the job; "" if none
	LastError string
	Dead      bool
	Output    []byte // saved result as stored; nil if there is none
	Twins     bool   // copies of the job are waiting in legacy queues

	Reply DispatchReply
}

// DispatchReply is a worker's reply to a job that has no Output.
type DispatchReply struct {
	Queue   string // queue that holds the reply; "" if there is none
	Payload []byte // as stored; nil if another program has stored a number or NULL
	Text    bool   // the payload is stored as text, as honker does, rather than as bytes
}

// DispatchCopy is a live job that stands for a sent job.
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
	Oldest   time.Time // enqueue time of the oldest pending job; zero if there is none
}

// DispatchOccupancy describes how busy actors are.
type DispatchOccupancy struct {
	Waiting map[string]int // pending jobs by queue, up to a thousand
	Workers []string       // worker of each running job; a worker is listed once per job
}
