package honker

import (
	"fmt"
	"runtime"

	"github.com/honker-go/honker/internal/worker"
)

// Pool bounds the handlers that run at once in all the Work loops that it is given to, in
// [WorkOptions] and [GroupWorkOptions]: of any queues, groups and DBs. Each loop keeps to its own
// Workers as well.
//
// A loop asks for a slot before it claims. So nothing is claimed that cannot start: while a job
// waits for a slot, neither its Timeout nor a lease runs, it can be worked on by another process,
// and its priority counts. In return handlers are not fed by claims ahead, as fast ones are
// without a Pool.
//
// A loop with nothing to claim has no slot. When all are taken, loops wait in order of arrival and
// get one slot each, so that a queue that is always full does not starve one that gets a job now
// and then. A loop that waits for the writer of its file, or that claims, keeps its slot meanwhile.
//
// A Pool needs no Close, has no goroutine and outlives the DBs. It is safe for concurrent use.
type Pool struct {
	slots *worker.Slots
	size  int
}

// NewPool returns a Pool for up to n handlers at once. Of an n of 0 or less, Work returns
// [ErrInvalid].
func NewPool(n int) *Pool {
	return &Pool{slots: worker.NewSlots(n), size: n}
}

// poolWorkers bounds the Workers that a loop has by default: no claim takes more jobs.
const poolWorkers = 256

func (p *Pool) check() error {
	if p != nil && p.size <= 0 {
		return fmt.Errorf("%w: Pool of %d", ErrInvalid, p.size)
	}
	return nil
}

// workers is the default of Workers. A queue with all the work may use the whole Pool.
func (p *Pool) workers() int {
	if p == nil {
		return runtime.GOMAXPROCS(0)
	}
	return min(p.size, poolWorkers)
}

// shared are the slots of the Pool; nil: no Pool.
func (p *Pool) shared() *worker.Slots {
	if p == nil {
		return nil
	}
	return p.slots
}
