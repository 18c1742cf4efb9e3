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

// Run hands messages to the handlers of all queues of r that have one. It blocks, waiting without polling, until ctx ends: then no other batch is taken, and
// those that have begun are completed, at the latest when their leases end. Any number of
// processes may run the same queues, and share their partitions.
//
// Run handles up to Options.Processors batches at once. Partitions that failed at their last attempt,
// also in another process or before a restart, never have the last of several processors: healthy
// partitions do not wait for them. By default a batch that takes longer than 20 milliseconds makes
// room for another, up to 64 in all, so endpoints that hang at their first attempt do not hold up
// the others either. An explicit Processors is the bound, and a Processors of 1 has no such room.
//
// It returns nil after the end of ctx, and [ErrStuck] with the partitions of handlers that have
// not returned by then; nothing else of it is still running. A bad name or option, no
// handler at all, and two for one queue are [honker.ErrInvalid]; [ErrPartitions] is a queue that has
// another number of partitions. Later it returns an error when the DB is closed or its file
// was replaced. Other errors of storage are logged and tried again.
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

// checkHandlers returns the handlers by queue.
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
			return nil, engine.Wrap("relay handle", name, fmt.Errorf("%w: it has a handler already", engine.ErrInvalid))
		}
		handlers[name] = h
	}
	return handlers, nil
}

// run is a Run that is running.
//
// The goroutine that has called Run, the coordinator, waits until a partition can be taken and
// takes a batch of it for a processor, a goroutine of its own. A processor goes on by itself: the
// transaction that saves the progress of its batch also takes the next one, of whichever partition
// was taken longest ago. It ends when there is none, so that a quiet relay has no goroutine but the
// coordinator.
type run struct {
	relay    *Relay
	handlers map[string]*handler
	queues   []row.RelayQueue
	owner    string          // of the leases
	lasting  context.Context // of handlers and writes: it outlives the ctx of Run

	waiter     *wake.Waiter
	slots      chan struct{} // a value for each processor, and for the batch that the coordinator waits for
	processors sync.WaitGroup
	draining   atomic.Bool

	mu      sync.Mutex
	sizes   map[row.RelayPartition]int // of the next batch, where it is smaller than that of the handler
	slow    int                        // slots that have left their place
	failing int                        // slots in their place with a batch of a partition that failed the last time
	refused bool                       // such a partition was not taken since the last place is not for it
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
		queues = append(queues, row.RelayQueue{Name: name, LeaseMS: int64((h.lease-1)/time.Millisecond) + 1})
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
	// Deferred in a function of its own, for a callback that ends this goroutine.
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

// reason is what Run returns for err: nothing for the end of its ctx.
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
	return &engine.Retry{Log: r.relay.engine.Logger, What: "relay: " + what, Attrs: attrs}
}

// until calls f until it succeeds, ctx ends, or no later call can.
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

// register writes the queues into the file. With all of them there it only reads.
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
		all, err = r.relay.store.Current(ctx, q)
		for name, h := range r.handlers {
			if !all || err != nil {
				return err
			}
			found, err := r.relay.store.Partitions(ctx, q, name)
			if err != nil {
				return err
			}
			if all = found != 0; !all {
				return nil
			}
			if err := h.queue.compare(found); err != nil {
				return engine.Wrap("relay handle", name, err)
			}
		}
		return err
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

// next waits for a partition that can be taken, and takes a batch of it. After a wake it does
// not look again, since the notifier has looked, unless that knows less: of partitions that are
// not to be taken.
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
	}
}

// look tells whether a partition can be taken, and asks for a wake at the time when one will.
func (r *run) look(ctx context.Context, w row.RelayWanted) (ready bool, err error) {
	err = r.relay.engine.Read(ctx, func(ctx context.Context, q engine.Querier) error {
		ready, err = r.ready(ctx, q, w, time.Now())
		return err
	})
	return ready, err
}

// wanted are the partitions that a processor with the slot may take now.
func (r *run) wanted(s *slot) row.RelayWanted {
	return row.RelayWanted{Queues: r.queues, Except: r.exceptions(), Healthy: s.healthyOnly()}
}

func (r *run) ready(ctx context.Context, q engine.Querier, w row.RelayWanted, now time.Time) (bool, error) {
	states, err := r.relay.store.States(ctx, q, w, now.UnixMilli())
	if err != nil {
		return false, err
	}
	for _, s := range states {
		if s.Ready {
			return true, nil
		}
		r.relay.engine.Notifier.WakeAt(engine.InstantMS(s.NextMS))
	}
	return false, nil
}

// exceptions are the partitions that are not to be taken, since an earlier handler still runs. It
// may be one of another Run, also of one that has ended without it.
func (r *run) exceptions() (all []row.RelayPartition) {
	r.relay.mu.Lock()
	defer r.relay.mu.Unlock()
	for p := range r.relay.stuck {
		all = append(all, p)
	}
	return all
}

// leftBehind names the handlers of this run that still run when all else of it has ended.
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
