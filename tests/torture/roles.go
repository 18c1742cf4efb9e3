//go:build unix

package torture

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/testkit"
)

// actor is a child process of a storm.
type actor struct {
	part
	db    *honker.DB
	notes *testkit.Ledger
	last  int64 // last number used
	mu    sync.Mutex
}

// Notes in the ledgers. The name with "?" is noted before a commit and the other name after it.
// doomed notes writes that will be rolled back, and writes that have failed.
const (
	jobMeant, jobAcked     = "job?", "job"
	mailMeant, mailAcked   = "mail?", "mail"
	eventMeant, eventAcked = "event?", "event"
	doomed                 = "doomed"
	sent, handled          = "sent", "handled"
	subscribed             = "subscribed" // a run of the subscriber begins
	stepped                = "stepped"    // the clock was set
	lost                   = "lost"       // a role begins again, because a server was lost
	uncertain              = "uncertain"  // a role begins again, because the answer to a commit was lost
)

var roles = map[string]func(*actor, context.Context) error{
	"producer":   (*actor).produce,
	"worker":     (*actor).work,
	"mailer":     (*actor).mail,
	"counter":    (*actor).see,
	"stepper":    (*actor).step,
	"spender":    (*actor).spend,
	"operator":   (*actor).operate,
	"subscriber": (*actor).subscribe,
	"piper":      (*actor).pipe,
	"member":     (*actor).takePart,
	"ticker":     (*actor).tick,
	"sender":     (*actor).sendMessages,
	"relay":      (*actor).handleMessages,

	"supervisor":     (*actor).supervise,
	"actor":          (*actor).perform,
	"old worker":     (*actor).workOld,
	"foreign worker": (*actor).workForeign,

	"starter":   (*actor).start,
	"runner":    (*actor).runFlows,
	"signaller": (*actor).signalFlows,
}

// play is the main function of a child. It runs its roles until it is killed or its stdin is
// closed.
func play() {
	a := &actor{part: testkit.ChildArgs[part]()}
	var err error
	a.notes, err = testkit.OpenLedger(a.Ledger)
	testkit.Must(err)
	var all sync.WaitGroup
	all.Go(a.setClock)
	o := &honker.Options{BusyTimeout: patience}
	if a.Full {
		o.Durability = honker.Full
	}
	for a.db == nil {
		a.db, err = honker.Open(testkit.ChildContext(), a.Path, o)
		testkit.Must(a.survive(err))
	}
	for _, role := range a.Roles {
		all.Go(func() { a.play(role) })
	}
	all.Wait()
	testkit.Must(a.db.Close())
}

// play plays a role until the child ends. The role begins again when it has lost the server.
func (a *actor) play(role string) {
	for ctx := testkit.ChildContext(); ctx.Err() == nil; {
		err := roles[role](a, ctx)
		if ctx.Err() == nil && (err == nil || a.survive(err) != nil) {
			testkit.Must(fmt.Errorf("%s: %w", role, err))
		}
	}
}

// survive returns nil if the server was lost, after a pause, and otherwise err.
func (a *actor) survive(err error) error {
	switch {
	case !testkit.LostServer(err):
		return err
	case errors.Is(err, honker.ErrUncertain):
		a.note(uncertain, 1)
	default:
		a.note(lost, 1)
	}
	time.Sleep(10 * time.Millisecond)
	return nil
}

// write notes numbers, calls do, and notes that they were acknowledged. If do has failed, nothing may
// have been written, unless the answer to its commit was lost.
func (a *actor) write(numbers []int64, do func() error, acked ...string) error {
	for _, kind := range acked {
		a.note(kind+"?", numbers...)
	}
	err := do()
	if err == nil {
		for _, kind := range acked {
			a.note(kind, numbers...)
		}
	} else if testkit.LostServer(err) && !errors.Is(err, honker.ErrUncertain) {
		a.note(doomed, numbers...)
	}
	return err
}

func (a *actor) note(what string, numbers ...int64) { testkit.Must(a.notes.Note(what, numbers...)) }

// number returns a number that is unique among all children.
func (a *actor) number() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.last++
	return int64(a.Number)<<24 + a.last
}

// A few numbers fail or are rejected, see fate.
func failsFirst(n int64) bool { return n%16 == 3 }
func isRejected(n int64) bool { return n%64 == 7 }

// fate returns the result of an attempt at a job. Rejected jobs wait until an operator requeues
// them.
func fate(n int64, attempt int) error {
	switch {
	case isRejected(n) && attempt == 1:
		return honker.Reject(errOnPurpose)
	case failsFirst(n) && attempt == 1:
		return errOnPurpose
	}
	return nil
}

func (a *actor) queue() *honker.Queue[int64] {
	return honker.NewQueue[int64](a.db, "work", &honker.QueueOptions{MaxAttempts: 1 << 20, Backoff: honker.Constant(0)})
}

func (a *actor) outbox() *honker.Outbox[int64] {
	return honker.NewOutbox(a.db, "mail", func(_ context.Context, n int64) error {
		a.note(sent, n)
		return nil
	}, &honker.OutboxOptions{MaxAttempts: 1 << 20, Lease: time.Second})
}

func (a *actor) events() *honker.Stream[int64] { return honker.NewStream[int64](a.db, "events", nil) }

// produce creates jobs, mails and events in all supported ways.
func (a *actor) produce(ctx context.Context) error {
	luck := rand.New(rand.NewPCG(uint64(a.Number), 3))
	ways := []func(context.Context) error{a.enqueue, a.enqueueMany, a.order, a.order, a.rolledBack, a.publish, a.send, a.increment, a.link, a.share}
	for ctx.Err() == nil {
		if err := ways[luck.IntN(len(ways))](ctx); err != nil {
			return err
		}
		time.Sleep(time.Duration(luck.IntN(1500)) * time.Microsecond)
	}
	return nil
}

func (a *actor) enqueue(ctx context.Context) error {
	n := a.number()
	return a.write([]int64{n}, func() error { _, err := a.queue().Enqueue(ctx, n); return err }, jobAcked)
}

func (a *actor) enqueueMany(ctx context.Context) error {
	ns := []int64{a.number(), a.number(), a.number()}
	return a.write(ns, func() error { _, err := a.queue().EnqueueMany(ctx, ns); return err }, jobAcked)
}

// order commits a row of the application together with its job, mail and event.
func (a *actor) order(ctx context.Context) error {
	n := a.number()
	return a.write([]int64{n}, func() error { return a.inTx(ctx, n, nil) }, jobAcked, mailAcked, eventAcked)
}

func (a *actor) rolledBack(ctx context.Context) error {
	n := a.number()
	a.note(doomed, n)
	return ignore(a.inTx(ctx, n, errOnPurpose), errOnPurpose)
}

func (a *actor) inTx(ctx context.Context, n int64, end error) error {
	return a.db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, failed := tx.ExecContext(ctx, `INSERT INTO orders VALUES ($1)`, n)
		_, enqueued := a.queue().EnqueueTx(ctx, tx, n)
		_, sent := a.outbox().SendTx(ctx, tx, n)
		_, published := a.events().PublishTx(ctx, tx, n)
		return errors.Join(failed, enqueued, sent, published, end)
	})
}

func (a *actor) publish(ctx context.Context) error {
	n := a.number()
	return a.write([]int64{n}, func() error { _, err := a.events().Publish(ctx, n); return err }, eventAcked)
}

func (a *actor) send(ctx context.Context) error {
	n := a.number()
	return a.write([]int64{n}, func() error { _, err := a.outbox().Send(ctx, n); return err }, mailAcked)
}

// work inserts the effect of each job in the transaction of its ack.
func (a *actor) work(ctx context.Context) error {
	return a.queue().WorkTx(ctx, func(ctx context.Context, tx *sql.Tx, job *honker.Job[int64]) error {
		if _, err := tx.ExecContext(ctx, `INSERT INTO effects VALUES ($1)`, job.Args); err != nil {
			return err
		}
		return fate(job.Args, job.Attempts)
	}, &honker.WorkOptions{Workers: 2, Lease: time.Second})
}

func (a *actor) mail(ctx context.Context) error {
	return a.outbox().Run(ctx, &honker.WorkOptions{Workers: 2, Lease: time.Second})
}

// saveEvery is the maximum number of events that a subscriber repeats.
const saveEvery = 3

func (a *actor) subscribe(ctx context.Context) error {
	a.note(subscribed, 1)
	for e, err := range a.events().Subscribe(ctx, "c", &honker.SubscribeOptions{SaveEvery: saveEvery, SaveInterval: 20 * time.Millisecond}) {
		if err != nil {
			return err
		}
		time.Sleep(300 * time.Microsecond) // a kill at this point must not find the event saved
		a.note(handled, e.Offset)
	}
	return nil
}

func (a *actor) pipe(ctx context.Context) error {
	return honker.Pipe(ctx, a.events(), "doubler", honker.NewStream[int64](a.db, "doubles", nil),
		func(_ context.Context, e *honker.Event[int64]) (int64, error) { return 2 * e.Data, nil })
}

// takePart joins a group and inserts the effect of each event in the transaction of its ack.
func (a *actor) takePart(ctx context.Context) error {
	g := a.events().Group("g", &honker.GroupOptions{Lease: 300 * time.Millisecond})
	m, err := g.Join(ctx, fmt.Sprint("member", a.number())) // each run has a name of its own
	if err != nil {
		return err
	}
	for d, err := range m.All(ctx) {
		if err != nil {
			return err
		}
		err = a.db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, `INSERT INTO taken VALUES ($1, $2)`, d.Data, d.Offset)
			return errors.Join(err, d.AckTx(ctx, tx))
		})
		if err := ignore(err, honker.ErrClaimLost); err != nil {
			return err
		}
	}
	return nil
}

// hurry is the speed of the schedules relative to the clock.
const hurry = 5

// tick fires schedules, as several processes do at the same time.
func (a *actor) tick(ctx context.Context) error {
	for ctx.Err() == nil {
		now := a.Began.Add(hurry * time.Since(a.Began))
		if _, err := a.db.Scheduler().Tick(ctx, now); err != nil {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
	return nil
}
