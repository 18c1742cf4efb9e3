package row

import "database/sql"

// DispatchPresence is a row of _honkerx_dispatch_presence.
type DispatchPresence struct {
	Key       string `json:"key"`
	Owner     string `json:"owner"`
	Value     string `json:"value"`
	ExpiresMS int64  `json:"expires_ms"`
}

// DispatchPart is a part of what dispatch has in the file.
type DispatchPart struct {
	Name string // of the object that tells whether the part is there
	DDL  string
}

// Sent is a job that is sent by dispatch.
type Sent struct {
	ID         int64
	Queue      string
	Events     string // the topic of its log; "": none
	ReplyQueue string
	ReplyTopic string
}

// DispatchStatus is what the file says of a job that was sent.
type DispatchStatus struct {
	RunID       int64
	Queue       string
	SentMS      int64
	StartedMS   int64
	EndedMS     int64
	Stopped     bool
	HeldUntilMS int64 // of a stopped one

	State     string // of the live job; "": there is none
	Attempts  int64
	Worker    string
	LastError string
	Dead      bool
	Output    sql.NullString
	Twins     bool // copies wait beside it

	ReplyQueue string // that has a reply of the job; "": none has, or there is an Output
	Reply      any    // the payload, as the file has it
}

// DispatchCopy is a live job that stands for one that was sent.
type DispatchCopy struct {
	ID      int64
	Queue   string
	Claimed bool
	Worker  string
	Until   int64 // unix seconds: the end of the claim
}

// DispatchLoad is how much lies in a queue.
type DispatchLoad struct {
	Queue    string
	Depth    int64
	InFlight int64
	Oldest   int64 // unix seconds: when the first of those that wait was enqueued; 0: none waits
}
