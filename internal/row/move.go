package row

// Mover identifies a move from this database to another one.
type Mover struct {
	Token  string // of the running mover; drawn at random
	Target string // identity of the database that the move leads to
}

// MoveSource describes the database that a move leads out of.
type MoveSource struct {
	ID     string // drawn at random by the first move
	Parcel int64  // the last parcel taken
	Jobs   int64  // the last ID of a job, a batch and an event
	Batch  int64
	Event  int64
}

// MoveWalk is the position of a pass over the jobs of a file.
type MoveWalk struct {
	Queues   []string // the queues that are moved; nil for all
	Limit    int      // the number of jobs in a parcel, except those that are linked to each other
	Stage    MoveStage
	After    int64               // the last ID that was looked at in the stage
	Deferred map[int64]MoveDefer // jobs that stay for now, by ID, and batches by negated ID
}

// MoveStage is a table that a pass reads.
type MoveStage int

// The stages of a pass.
const (
	MoveLive MoveStage = iota
	MoveDead
	MoveBatches
	MoveSchedules
	MoveOver // the pass is over
)

// MoveDefer is the reason why a job stays in the file.
type MoveDefer int

// The reasons why jobs stay.
const (
	MoveRuns     MoveDefer = iota + 1 // the job or a job that it is linked to runs
	MoveUnlisted                      // it is linked to a job of a queue that is not moved
	MoveReply                         // it is a reply to a caller of package dispatch
	MoveText                          // PostgreSQL cannot hold its text
)

// Parcel holds jobs that have left the file. Text is JSON.
type Parcel struct {
	N    int64 // 0: there is nothing to move
	Text string
}

// MoveQueue counts the jobs that a queue has left in a file.
type MoveQueue struct {
	Queue     string
	Waiting   int64 // including jobs whose claims have lapsed
	Running   int64
	Dead      int64
	Done      int64
	Schedules int64
}

// MoveRelay is a relay's queue in a file.
type MoveRelay struct {
	Family, Queue string
	Partitions    int
	Waiting       int64
	Leased        int64 // partitions that handlers hold
	Dead          int64
}

// MoveTopic is a topic of a file.
type MoveTopic struct {
	Topic string
	Last  int64 // offset of the last event
	Count int64
}

// MovePart is a part of a list, as JSON, and where the next part begins.
type MovePart struct {
	Text  string
	N     int
	Last  int64
	After [2]string
}
