package relay

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/wake"
)

// Run delivers messages to the handlers of all queues of r that have a handler. It blocks, waiting
// without polling, until ctx ends. It then takes no more batches and waits for the batches in
// progress, at most until their leases end. Any number of processes may run the same queues and
// share their partitions.
//
// Run handles up to Options.Processors batches at once. Partitions whose last attempt failed, even
// in another process or before a restart, never occupy the last of several processors, so healthy
// partitions do not wait for them. By default a batch that runs longer than 20 milliseconds makes
// room for another, up to 64 in all. This way, endpoints that become slow without failing don't
// block the others either. If Processors is set, it is a fixed limit. With a single processor, a
// failing partition can delay the others.
//
// Run returns nil after ctx has ended, or [ErrStuck] with the partitions whose handlers have not
// returned; nothing else is still running in that case. It returns [honker.ErrInvalid] if a name or
// an option is invalid, if no queue has a handler, or if a queue has two. It returns
// [ErrPartitions] if a queue has a different number of partitions in the database. While running,
// it returns an error if the DB is closed or its file is replaced. Other storage errors are logged
// and retried.
func (r *Relay) Run(ctx context.Context) error {
	handlers, err := r.checkHandlers()
	if err == nil {
		err = r.engine.RefuseInTx(ctx, "")
	}
	if err != nil {
		return engine.Wrap("relay run", "", err)
	}
	ctx, leave, err := r.engine.Enter(ctx)
	if err != nil {
		return engine.Wrap("relay run", "", err)
	}
	defer leave()
	return engine.Wrap("relay run", "", newRun(ctx, r, handlers).run(ctx))
}

// checkHandlers validates the handlers and returns them by queue.
func (r *Relay) checkHandlers() (map[string]*handler, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		return nil, r.err
	}
	if len(r.handlers) == 0 {
		return nil, fmt.Errorf("%w: no queue has a handler", engine.ErrInvalid)
	}
	handlers := make(map[string]*handler, len(r.handlers))
	for _, h := range r.handlers {
		name := h.queue.name
		if err := h.check(); err != nil {
			return nil, engine.Wrap("relay handle", name, err)
		}
		if handlers[name] != nil {
			return nil, engine.Wrap("relay handle", name, fmt.Errorf("%w: the queue already has a handler", engine.ErrInvalid))
		}
		handlers[name] = h
	}
	return handlers, nil
}

// run is the state of a call to Run.
//
// The goroutine that called Run is the coordinator. It waits until a partition can be taken, takes
// a batch and starts a processor for it in a new goroutine. The transaction in which a processor
// saves its batch's progress also takes the next batch, from the least recently taken partition. A
// processor ends when there are no more batches, so an idle relay runs only the coordinator.
type run struct {
	relay    *Relay
	handlers map[string]*handler
	queues   []row.RelayQueue
	owner    string          // owner of the leases
	lasting  context.Context // ctx of handlers and writes; outlives Run's ctx

	waiter     *wake.Waiter
	slots      chan struct{} // holds a value for each occupied place, including the place reserved by the coordinator
	processors sync.WaitGroup
	draining   atomic.Bool

	mu      sync.Mutex
	sizes   map[row.RelayPartition]int // size of the next batch, for partitions where it is smaller than the handler's batch size
	slow    int                        // number of slots that have given up their place
	failing int                        // number of occupied places whose partition failed on its last attempt
	refused bool                       // set when healthyOnly made a failing partition wait
}

func newRun(ctx context.Context, r *Relay, handlers map[string]*handler) *run {
	token := make([]byte, 16)
	_, _ = rand.Read(token) // it never fails
	run := &run{
		relay:    r,
		handlers: handlers,
		owner:    hex.EncodeToString(token),
		lasting:  context.WithoutCancel(ctx),
		slots:    make(chan struct{}, r.opts.Processors),
		sizes:    make(map[row.RelayPartition]int),
	}
	queues := make([]row.RelayQueue, 0, len(handlers))
	for name, h := range handlers {
		queues = append(queues, row.RelayQueue{Name: name, Lease: h.lease, Batch: h.tuning.batch})
	}
	run.queues = queues
	return run
}

// run registers the queues, coordinates until ctx ends, and drains.
func (r *run) run(ctx context.Context) error {
	retry := r.retry("transaction failed, retrying")
	if err := r.until(ctx, retry, r.register); err != nil || ctx.Err() != nil {
		return r.reason(ctx, err)
	}
	keys := make([]wake.Key, 0, len(r.handlers))
	for _, h := range r.handlers {
		keys = append(keys, h.queue.key())
	}
	r.waiter = r.relay.engine.Notifier.Subscribe(keys...)
	defer r.waiter.Close()
	sweeping, stopSweeping := context.WithCancel(ctx)
	var sweeper sync.WaitGroup
	sweeper.Go(func() { r.sweepLoop(sweeping) })
	var err error
	// The closure's deferred calls also run if a callback calls runtime.Goexit.
	func() {
		defer func() {
			r.draining.Store(true)
			stopSweeping()
			r.processors.Wait()
			sweeper.Wait()
		}()
		err = r.coordinate(ctx, retry)
	}()
	return errors.Join(r.reason(ctx, err), r.leftBehind())
}

// reason returns the result of Run: nil or ErrClosed after ctx has ended, and err otherwise.
func (r *run) reason(ctx context.Context, err error) error {
	switch {
	case errors.Is(context.Cause(ctx), engine.ErrClosed):
		return engine.ErrClosed
	case ctx.Err() != nil:
		return nil
	}
	return err
}

func (r *run) retry(what string, attrs ...any) *engine.Retry {
	return &engine.Retry{Log: r.relay.engine.Logger, Message: "relay: " + what, Attrs: attrs}
}

// until calls f until it succeeds, ctx ends, or a retry is pointless.
func (r *run) until(ctx context.Context, retry *engine.Retry, f func(ctx context.Context) error) error {
	for {
		err := f(ctx)
		if err == nil || errors.Is(err, ErrPartitions) {
			return err
		}
		if err := retry.After(ctx, err); err != nil {
			return err
		}
	}
}

// register registers the queues. If all are registered it writes nothing.
func (r *run) register(ctx context.Context) error {
	all, err := r.registered(ctx)
	if err != nil || all {
		return err
	}
	return r.relay.engine.Write(ctx, "", engine.OpFunc(func(ctx context.Context, q engine.Querier, now time.Time) error {
		for name, h := range r.handlers {
			if _, err := h.queue.register(ctx, q, now); err != nil {
				return engine.Wrap("relay handle", name, err)
			}
		}
		return nil
	}))
}

func (r *run) registered(ctx context.Context) (all bool, err error) {
	err = r.relay.engine.Read(ctx, func(ctx context.Context, q engine.Querier) error {
		for name, h := range r.handlers {
			found, outdated, err := r.relay.store.Partitions(ctx, q, name)
			if err != nil {
				return err
			}
			if all = found != 0 && !outdated; !all {
				return nil
			}
			if err := h.queue.compare(found); err != nil {
				return engine.Wrap("relay handle", name, err)
			}
		}
		return nil
	})
	return all, err
}

// coordinate starts processors until ctx ends.
func (r *run) coordinate(ctx context.Context, retry *engine.Retry) error {
	for {
		select {
		case r.slots <- struct{}{}:
		case <-ctx.Done():
			return nil
		}
		var first *active
		s := &slot{run: r}
		err := r.until(ctx, retry, func(ctx context.Context) (err error) {
			first, err = r.next(ctx, s)
			return err
		})
		if err != nil {
			return err
		}
		retry.Reset()
		r.processors.Go(func() { r.process(s, first) })
	}
}

// next waits until a partition is ready and takes a batch from it. After a wake-up it does not call
// look again, because the notifier has already checked. The notifier does not know about excluded
// partitions, so next does call look if there are any.
func (r *run) next(ctx context.Context, s *slot) (*active, error) {
	for {
		w := r.wanted(s)
		ready, err := r.look(ctx, w)
		if err != nil {
			return nil, err
		}
		if !ready {
			if err := r.waiter.Wait(ctx, wake.Forever); err != nil {
				return nil, err
			}
			if w.Healthy || len(r.exceptions()) > 0 {
				continue
			}
		}
		op := &stepOp{run: r, slot: s, want: true, alone: true}
		if err := r.relay.engine.Write(ctx, "", op); err != nil {
			return nil, err
		}
		if next := r.stepped(op); next != nil {
			return next, nil
		}
		if op.busy.Queue != "" {
			if err := r.await(ctx, op.busy); err != nil {
				return nil, err
			}
		}
	}
}

// await waits for the transaction that has locked a partition.
func (r *run) await(ctx context.Context, p row.RelayPartition) error {
	return r.relay.engine.Write(ctx, "", engine.OpFunc(func(ctx context.Context, q engine.Querier, _ time.Time) error {
		return r.relay.store.Await(ctx, q, p)
	}))
}

// look reports whether a partition can be taken. If not, it schedules a wake-up for the time when
// the next partition becomes ready.
func (r *run) look(ctx context.Context, w row.RelayWanted) (ready bool, err error) {
	err = r.relay.engine.Read(ctx, func(ctx context.Context, q engine.Querier) error {
		ready, err = r.ready(ctx, q, w, r.relay.engine.Now())
		return err
	})
	return ready, err
}

// wanted describes the partitions that the processor in slot s may take now.
func (r *run) wanted(s *slot) row.RelayWanted {
	return row.RelayWanted{Queues: r.queues, Except: r.exceptions(), Healthy: s.healthyOnly(), Sizes: r.smaller()}
}

func (r *run) ready(ctx context.Context, q engine.Querier, w row.RelayWanted, now time.Time) (bool, error) {
	states, err := r.relay.store.States(ctx, q, w, now)
	if err != nil {
		return false, err
	}
	for _, s := range states {
		if s.Ready {
			return true, nil
		}
		r.relay.engine.Notifier.WakeAt(s.Next)
	}
	return false, nil
}

// exceptions returns the partitions that must not be taken because an abandoned handler is still
// running there. The handler may belong to another Run, possibly one that has already returned.
func (r *run) exceptions() (all []row.RelayPartition) {
	r.relay.mu.Lock()
	defer r.relay.mu.Unlock()
	for p := range r.relay.stuck {
		all = append(all, p)
	}
	return all
}

// leftBehind returns an error that names this run's handlers that are still running.
func (r *run) leftBehind() (err error) {
	r.relay.mu.Lock()
	defer r.relay.mu.Unlock()
	for p, a := range r.relay.stuck {
		if a.taken.Owner == r.owner {
			err = errors.Join(err, fmt.Errorf("%w: queue %q, partition %d", ErrStuck, p.Queue, p.Partition))
		}
	}
	return err
}
