package row

import "time"

// Edge is a dependency of a waiting job that has not completed. It names a job or a batch.
type Edge struct {
	Job   int64 // 0 if the dependency is a batch
	Batch int64 // 0 if the dependency is a job
	Dead  bool  // the dependency is dead; the waiter stays held until it is requeued or discarded
}

// Neighbor is a node at the other end of an edge. A node is a job ID or a negated batch ID.
type Neighbor struct {
	Node int64
	Dead bool // the dependency is dead
	Done bool
}

// Links holds the dependencies and the batch of the jobs in an enqueue.
type Links struct {
	Jobs    []int64 // jobs to wait for
	Batches []int64 // batches to wait for
	IfDead  bool    // a dead predecessor also releases the jobs
	In      int64   // batch that the jobs are added to; 0 if none
}

// Waits reports whether l names any job or batch to wait for.
func (l *Links) Waits() bool { return len(l.Jobs)+len(l.Batches) > 0 }

// Batch is a batch and counts of its members.
type Batch struct {
	ID            int64
	Name, Headers string
	Total, Live   int64 // members ever added; members that are waiting or running
	Running, Dead int64
	Open          bool      // members may still be added
	Created, Done time.Time // Done is zero until the batch is done
	Next          []int64   // jobs that are waiting for the batch, at most 100
}
