package row

import "time"

// ExplainRequest bounds an explanation.
type ExplainRequest struct {
	MaxAhead int // bound on the jobs that are counted as ahead of a job
	MaxJobs  int // bound on the ids in each list
}

// Explained describes how the next claims of a queue treat a job. It assumes that each claim takes a single
// job, that all claims happen at the same moment, and that the workers have room for every job.
type Explained struct {
	Found   bool
	Job     Job   // live, dead or done; zero if it was not found
	Highest int64 // highest id ever assigned, if the job was not found

	// The other fields are only set for a job that waits for a claim and can still run.

	Queue    QueueForecast // state of the queue of the job
	Side     JobSide
	Forecast JobForecast
	Edges    []Edge      // with State Held, unless Freed: the dead predecessors first, then the unfinished ones
	Batches  []EdgeBatch // for each of Edges that names a batch
	Freed    bool        // the job is held, and the next claim releases it by dead-lettering its predecessors
	Running  Occupants   // with Forecast.QueueFull: jobs that count against the limit of the queue
	OfKey    Occupants   // with Forecast.KeyFull: jobs that count against the limit of the key
}

// ExplainedQueue describes the next claims of a queue.
type ExplainedQueue struct {
	Queue   QueueForecast
	Ahead   Count      // jobs that the next claims take, ignoring a pause and the limits of the queue
	First   int64      // the first of these jobs; 0 if there is none
	Running Occupants  // if Queue.Running is not 0
	Head    *Explained // First, or else a job that waits for some other reason; nil if no job waits
	// Next is the time at which the queue continues by itself. It is only set with a Head and without a
	// First, and zero if that does not depend on time.
	Next time.Time
}

// EdgeBatch is a batch that a job waits for.
type EdgeBatch struct {
	Batch
	Jobs []int64 // its dead members, or its live members if none is dead
}

// Occupants are the jobs that count against a limit.
type Occupants struct {
	Running   []int64 // jobs with a valid claim
	Cancelled []int64 // cancelled jobs whose handlers may not have returned
}

// JobForecast describes how the next claims of a queue treat a job. For a job that is not due yet, only
// KeyPause and First are set.
type JobForecast struct {
	Ahead      Count     // jobs that are claimed first, ignoring a pause and the limits of the queue
	QueueFull  bool      // the jobs ahead use up the running limit of the queue
	RateSpent  bool      // the jobs ahead use up the start rate of the queue
	Next       time.Time // next start that the rate of the queue allows; zero if it allows a start now
	About      time.Time // earliest start of the job at the rate of the queue, after the jobs ahead; zero without a rate
	KeyPause   *Pause    // pause of the key; nil if it is not paused
	KeyFull    bool      // the running limit of the key is reached, counting jobs of the key that are ahead
	KeyRunning int64     // running jobs of the key, counted in the same way
	First      int64     // with InOrder: the first job of the key; 0 if it is this job
	KeyStart   time.Time // start that the rate of the key assigns to the job; zero if it may start now
}

// JobSide holds the parts of a live job's state that explain why it waits.
type JobSide struct {
	Reserved bool  // RunAt is a start assigned by the rate of the job's key
	Paused   bool  // RunAt is the end of a pause of the job's key
	Held     bool  // the job is held until its key has room
	After    int64 // job that holds the unique key and must end first; 0 if none
}

// QueueForecast is the state of a queue on which its next claims depend.
type QueueForecast struct {
	Name      string
	Pause     *Pause // nil if the queue is not paused
	Limits    QueueLimits
	Running   int64 // running jobs, including cancelled jobs that may still run
	Cancelled int64 // the cancelled jobs among Running
}
