package row

// Standing describes how the next claims of a queue treat a job that is due.
type Standing struct {
	Ahead      Count  // jobs that are claimed first, ignoring a pause and the limits of the queue
	QueueFull  bool   // the jobs ahead use up the running limit of the queue
	RateSpent  bool   // the jobs ahead use up the start rate of the queue
	NextMS     int64  // next start that the rate of the queue allows; 0 if it allows a start now
	AboutMS    int64  // earliest start of the job at the rate of the queue, after the jobs ahead; 0 without a rate
	KeyPause   *Pause // pause of the key; nil if it is not paused
	KeyFull    bool   // the running limit of the key is reached, counting jobs of the key that are ahead
	KeyRunning int64  // running jobs of the key, counted in the same way
	First      int64  // with InOrder: the first job of the key; 0 if it is this job
	KeyStart   int64  // start that the rate of the key assigns to the job; 0 if it may start now
}

// JobSide holds the parts of a live job's state that explain why it waits.
type JobSide struct {
	Reserved bool  // RunAt is a start assigned by the rate of the job's key
	Paused   bool  // RunAt is the end of a pause of the job's key
	Held     bool  // the job is held until its key has room
	After    int64 // job that holds the unique key and must end first; 0 if none
}

// QueueOutlook is the state of a queue on which its next claims depend.
type QueueOutlook struct {
	Name      string
	Pause     *Pause // nil if the queue is not paused
	Limits    QueueLimits
	Running   int64 // running jobs, including cancelled jobs that may still run
	Cancelled int64 // the cancelled jobs among Running
	Most      int   // bound on the jobs counted as ahead of a job
}
