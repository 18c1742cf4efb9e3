package row

import "database/sql"

// DispatchPresence is a presence entry of dispatch.
type DispatchPresence struct {
	Key       string `json:"key"`
	Owner     string `json:"owner"`
	Value     string `json:"value"`
	ExpiresMS int64  `json:"expires_ms"`
}

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

// Sent is a job sent by dispatch.
type Sent struct {
	ID         int64
	Queue      string
	Events     string // topic of its log; "" if none
	ReplyQueue string
	ReplyTopic string
}

// DispatchStatus is the recorded state of a job sent by dispatch.
type DispatchStatus struct {
	RunID       int64 // job that runs in place of the job sent; the same id unless a copy was claimed
	Queue       string
	SentMS      int64
	StartedMS   int64
	EndedMS     int64
	Stopped     bool
	HeldUntilMS int64 // with Stopped: the end of the claim that was held at the stop; 0 if none was

	State     string // state of the live job; "" if there is none
	Attempts  int64
	Worker    string
	LastError string
	Dead      bool
	Output    sql.NullString
	Twins     bool // copies of the job wait in legacy queues

	ReplyQueue string // queue that holds a reply to the job; "" if there is none or Output is set
	Reply      any    // payload of that reply, as stored
}

// DispatchCopy is a live job that stands for a job sent by dispatch.
type DispatchCopy struct {
	ID      int64
	Queue   string
	Claimed bool
	Worker  string
	Until   int64 // end of the claim
}

// DispatchLoad is the number of jobs in a queue.
type DispatchLoad struct {
	Queue    string
	Depth    int64
	InFlight int64
	Oldest   int64 // enqueue time of the oldest waiting job; 0 if none waits
}
