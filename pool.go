package honker

import (
	"fmt"
	"runtime"

	"github.com/honker-go/honker/internal/worker"
)

// Pool limits the number of handlers that run at once across all Work loops that share it through [WorkOptions]
// or [GroupWorkOptions]. The loops may belong to any queues, groups and DBs. Each loop is still limited by its
// Workers option.
//
// A loop acquires a slot before it claims, so it never claims a job that cannot start. While a job waits for a
// slot, its Timeout and its lease have not started, its priority still counts, and another process can claim it.
// In return, loops with a Pool do not claim jobs ahead, which makes very short jobs slower.
//
// A loop with nothing to claim holds no slot. If all slots are taken, loops wait in order of arrival and get a
// single slot each, so that a queue that is always full does not starve a queue that rarely gets a job. A loop
// keeps its slot while it claims and while it waits for its file's writer. A handler keeps its slot until it
// returns, even after its Timeout.
//
// A Pool limits the handlers of this process only; [Queue.SetLimits] applies to all processes. A Pool has no
// goroutine, needs no Close and may outlive the DBs. It is safe for concurrent use.
type Pool struct {
	slots *worker.Slots
	size  int
}

// NewPool returns a Pool for up to n concurrent handlers. If n is not positive, the loops that use the Pool return
// [ErrInvalid].
func NewPool(n int) *Pool {
	return &Pool{slots: worker.NewSlots(n), size: n}
}

// poolWorkers limits the default number of Workers of a loop with a Pool. No claim takes more jobs than this.
const poolWorkers = 256

func (p *Pool) check() error {
	if p != nil && p.size <= 0 {
		return fmt.Errorf("%w: the size of a Pool must be positive, got %d", ErrInvalid, p.size)
	}
	return nil
}

// workers returns the default for Workers, which lets a single busy queue use the whole Pool.
func (p *Pool) workers() int {
	if p == nil {
		return runtime.GOMAXPROCS(0)
	}
	return min(p.size, poolWorkers)
}

// shared returns the Pool's slots, or nil if p is nil.
func (p *Pool) shared() *worker.Slots {
	if p == nil {
		return nil
	}
	return p.slots
}
