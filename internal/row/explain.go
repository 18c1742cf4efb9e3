package row

import "time"

// ExplainRequest limits the size of an explanation.
type ExplainRequest struct {
	MaxAhead int // maximum number of jobs to count as ahead of a job
	MaxJobs  int // maximum number of IDs in each list
}

// Explained describes how the next claims on a queue treat a job. It assumes that each claim takes a single
// job, that all claims happen at the same moment, and that the workers have room for every job.
type Explained struct {
	Found   bool
	Job     Job   // live, dead or done; zero if it was not found
	Highest int64 // highest ID ever assigned, if the job was not found

	// The other fields are set only if the job is waiting for a claim and can still run.

	Queue    QueueForecast // state of the job's queue
	Side     JobSide
	Forecast JobForecast
	Edges    []Edge      // with State Held, unless Freed: the dead predecessors, then the unfinished ones
	Batches  []EdgeBatch // for each edge that names a batch
	Freed    bool        // the job is held, but the next claim releases it by dead-lettering its predecessors
	Running  Occupants   // with Forecast.QueueFull: jobs that count toward the queue's limit
	OfKey    Occupants   // with Forecast.KeyFull: jobs that count toward the key's limit
}

// ExplainedQueue describes the next claims on a queue.
type ExplainedQueue struct {
	Queue   QueueForecast
	Ahead   Count      // jobs that the next claims take, ignoring a pause and the queue's limits
	First   int64      // the first of these jobs; 0 if there is none
	Running Occupants  // if Queue.Running is not 0
	Head    *Explained // First or, if it is 0, a job that is waiting for some other reason; nil if no job is waiting
	// Next is the time at which jobs can be claimed again without any other change, or zero if that does
	// not depend on time. It is set only if there is a Head but no First.
	Next time.Time
}

// EdgeBatch is a batch that a job waits for.
type EdgeBatch struct {
	Batch
	Jobs []int64 // its dead members, or its live members if none is dead
}

// Occupants are the jobs that count toward a limit.
type Occupants struct {
	Running   []int64 // jobs with a valid claim
	Cancelled []int64 // cancelled jobs whose handlers may not have returned yet
}

// JobForecast describes how the next claims on a queue treat a job. For a job that is not due yet, only
// KeyPause and First are set.
type JobForecast struct {
	Ahead      Count     // jobs that are claimed first, ignoring a pause and the queue's limits
	QueueFull  bool      // the jobs ahead use up the queue's running limit
	RateSpent  bool      // the jobs ahead use up the queue's start rate
	Next       time.Time // next start that the queue's rate allows; zero if it allows a start now
	About      time.Time // earliest start of the job at the queue's rate, after the jobs ahead; zero without a rate
	KeyPause   *Pause    // the key's pause; nil if the key is not paused
	KeyFull    bool      // the key's running limit is reached, counting the key's jobs that are ahead
	KeyRunning int64     // the key's running jobs, counted the same way
	First      int64     // with InOrder: the key's first job; 0 if it is this job
	KeyStart   time.Time // start that the key's rate assigns to the job; zero if it may start now
}

// JobSide holds the parts of a live job's state that explain why it is waiting.
type JobSide struct {
	Reserved bool  // RunAt is a start assigned by the rate of the job's key
	Paused   bool  // RunAt is the end of a pause of the job's key
	Held     bool  // the job is held until its key has room
	After    int64 // job that holds the unique key and must end first; 0 if none
}

// QueueForecast is the part of a queue's state that determines its next claims.
type QueueForecast struct {
	Name      string
	Pause     *Pause // nil if the queue is not paused
	Limits    QueueLimits
	Running   int64 // running jobs, including cancelled jobs that may still run
	Cancelled int64 // the number of cancelled jobs included in Running
}
