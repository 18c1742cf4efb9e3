package row

// Standing is what the next claims do with a job that is due.
type Standing struct {
	Ahead      Count  // jobs that they take before it, or would but for the pause and the limits of the queue
	QueueFull  bool   // with those, as many run as may
	RateSpent  bool   // with those, the rate of the queue has no start left
	NextMS     int64  // without them neither: when it has the next one, in unix milliseconds
	AboutMS    int64  // when those and the job have started, if they do so at once
	KeyPause   *Pause // nil: none
	KeyFull    bool   // as many of its key run as may, those ahead of it included
	KeyRunning int64  // how many that are
	First      int64  // in order: the job of its key that comes first; 0: itself
	KeyStart   int64  // the start that the rate of its key gives it, in unix seconds; 0: at once
}

// JobSide is what explains a live job beside its row.
type JobSide struct {
	Reserved bool  // its time is a start that the rate of its key has given it
	Paused   bool  // or the end of a pause of its key
	Held     bool  // for its key
	After    int64 // the job that has its unique key, the end of which it waits for; 0: none
}
