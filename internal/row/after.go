package row

// Edge is what a job waits for, and has not ended well.
type Edge struct {
	Job   int64 // or 0
	Batch int64
	Dead  bool // it goes on waiting until that is requeued or discarded
}

// Links is what an enqueue says of the other jobs that its jobs belong together with.
type Links struct {
	Jobs    []int64 // that they wait for
	Batches []int64 // that they wait for
	IfDead  bool    // what is dead will do
	In      int64   // the batch that they are members of; 0: none
}

// waits reports that there is something to wait for.
func (l *Links) Waits() bool { return len(l.Jobs)+len(l.Batches) > 0 }

// Batch is a batch as it is read.
type Batch struct {
	ID                int64
	Name, Headers     string
	Total, Live       int64 // members ever, and those that wait or run
	Running, Dead     int64
	Open              bool
	CreatedMS, DoneMS int64 // 0: it is not done
	Next              []int64
}
