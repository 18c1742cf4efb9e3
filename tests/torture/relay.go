//go:build unix

package torture

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"syscall"
	"time"

	"github.com/honker-go/honker/internal/testkit"
	"github.com/honker-go/honker/relay"
)

// Relays checks the guarantees of package relay: the order of each partition, no lost messages, and
// effects of HandleTx exactly once. Rounds kill or suspend processes and crash the server, cut the
// power, or let the disk fail.
func Relays(ctx context.Context, r *Round) error {
	for _, name := range []string{"acked_lost", "phantoms", "duplicates", "order_violations", "hung"} {
		r.Add(name, 0)
	}
	switch kind := r.Seed % 3; {
	case kind == 0 || !testkit.OnFile():
		return relayKills(ctx, r)
	case kind == 1:
		return relayCuts(ctx, r)
	default:
		return relayFaults(ctx, r)
	}
}

// relayParts are two processes that send and handle messages.
var relayParts = [][]string{{"sender", "relay"}, {"sender", "relay"}}

const (
	relayPartitions = 4
	relayLease      = 400 * time.Millisecond
	relayHeadroom   = 100 * time.Millisecond
)

var relayQueues = []string{"one", "batch", "tx"}

// relayKills kills processes that send and handle messages, or suspends them for longer than a
// lease. Their ledgers contain the intended, acknowledged and handled messages.
func relayKills(ctx context.Context, r *Round) error {
	s := &storm{Round: r, parts: relayParts, pause: 60 * time.Millisecond, span: 4 * time.Second, freeze: relayLease, rest: [][]string{{"relay"}}, few: true}
	s.left, s.check = s.relayed, s.checkRelay
	return s.run(ctx)
}

// relayed describes the messages that are left, or returns "".
func (s *storm) relayed(ctx context.Context) (string, error) {
	there, err := one[bool](ctx, s.db.SQL(), testkit.RelayBegun)
	if err != nil || !there {
		return "no relay has begun", err
	}
	left, err := one[int](ctx, s.db.SQL(), testkit.CountMessages)
	if err != nil || left > 0 {
		return fmt.Sprint(left, " messages are left"), err
	}
	held, err := one[int](ctx, s.db.SQL(), testkit.CountHeld)
	if err != nil || held > 0 {
		return fmt.Sprint(held, " partitions are held"), err
	}
	return "", nil
}

// stopAndGo suspends a process for a while, possibly beyond its leases, and resumes it.
func (s *storm) stopAndGo() error {
	victim := s.slots[s.Rand.IntN(len(s.slots))]
	if err := victim.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return errors.Join(err, victim.alive())
	}
	time.Sleep(time.Duration(s.Rand.Int64N(int64(2 * s.freeze))))
	s.Add("stops", 1)
	return victim.cmd.Process.Signal(syscall.SIGCONT)
}

// Notes of senders in their ledgers.
const messageMeant, messageAcked = "message?", "message"

// relayOf returns a relay of the actor and its queues.
func (a *actor) relayOf() (r *relay.Relay, queues []*relay.Queue) {
	o := testkit.RelayObserver(func(what any, n int64) { a.note(fmt.Sprint(what), n) })
	r = relay.New(a.db, &relay.Options{Observer: o, RetryBase: time.Millisecond, RetryMax: 20 * time.Millisecond, Batch: 6})
	for _, name := range relayQueues {
		queues = append(queues, r.Queue(name, relayPartitions))
	}
	return r, queues
}

// sendMessages sends messages in all supported ways, each after the previous commit.
func (a *actor) sendMessages(ctx context.Context) error {
	luck := rand.New(rand.NewPCG(uint64(a.Number), 6))
	_, queues := a.relayOf()
	ways := []func(context.Context, *relay.Queue, *rand.Rand) error{a.sendSome, a.sendSome, a.sendInTx, a.sendDoomed}
	for ctx.Err() == nil {
		q := queues[luck.IntN(len(queues))]
		if err := ways[luck.IntN(len(ways))](ctx, q, luck); err != nil {
			return err
		}
		time.Sleep(time.Duration(luck.IntN(3000)) * time.Microsecond)
	}
	return nil
}

// outgoing returns a few messages with unique numbers.
func (a *actor) outgoing(luck *rand.Rand) (all []relay.Outgoing, numbers []int64) {
	for range 1 + luck.IntN(4) {
		n := a.number()
		numbers = append(numbers, n)
		all = append(all, relay.Outgoing{Partition: luck.IntN(relayPartitions), Payload: strconv.AppendInt(nil, n, 10)})
	}
	return all, numbers
}

func (a *actor) sendSome(ctx context.Context, q *relay.Queue, luck *rand.Rand) error {
	all, numbers := a.outgoing(luck)
	return a.write(numbers, func() error { _, err := q.Send(ctx, all...); return err }, messageAcked)
}

// sendInTx sends messages in a transaction that also inserts rows of the application.
func (a *actor) sendInTx(ctx context.Context, q *relay.Queue, luck *rand.Rand) error {
	all, numbers := a.outgoing(luck)
	return a.write(numbers, func() error { return a.sendWithRows(ctx, q, all, numbers, nil) }, messageAcked)
}

func (a *actor) sendDoomed(ctx context.Context, q *relay.Queue, luck *rand.Rand) error {
	all, numbers := a.outgoing(luck)
	a.note(doomed, numbers...)
	return ignore(a.sendWithRows(ctx, q, all, numbers, errOnPurpose), errOnPurpose)
}

func (a *actor) sendWithRows(ctx context.Context, q *relay.Queue, all []relay.Outgoing, numbers []int64, end error) error {
	return a.db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		for _, n := range numbers {
			if _, err := tx.ExecContext(ctx, `INSERT INTO orders VALUES ($1)`, n); err != nil {
				return err
			}
		}
		_, err := q.SendTx(ctx, tx, all...)
		return errors.Join(err, end)
	})
}

// handleMessages notes the messages that it handles. A few fail at first and a few are rejected.
func (a *actor) handleMessages(ctx context.Context) error {
	r, queues := a.relayOf()
	lease := relay.Lease(relayLease, relayHeadroom)
	queues[0].Handle(func(_ context.Context, m *relay.Message) error {
		if m.ID%8 == 0 {
			time.Sleep(5 * time.Millisecond) // makes it likely that the process is suspended or killed here
		}
		return a.given(m)
	}, lease)
	queues[1].HandleBatch(func(_ context.Context, b *relay.Batch) error {
		for m, ok := b.Next(); ok; m, ok = b.Next() {
			err := a.given(m)
			switch {
			case isRejected(messageNumber(m)):
				b.Reject(err)
			case err != nil:
				return err
			default:
				b.Ack()
			}
		}
		return nil
	}, lease)
	queues[2].HandleTx(func(ctx context.Context, tx *sql.Tx, m *relay.Message) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO effects VALUES ($1)`, messageNumber(m))
		return errors.Join(err, a.given(m))
	}, lease)
	return r.Run(ctx)
}

// given notes a message, and returns the error with which its handler ends.
func (a *actor) given(m *relay.Message) error {
	n := messageNumber(m)
	testkit.NoteGiven(func(what any, n int64) { a.note(fmt.Sprint(what), n) }, m, n)
	switch {
	case isRejected(n):
		return relay.Reject(errOnPurpose)
	case failsFirst(n) && m.Attempt == 0:
		return errOnPurpose
	}
	return nil
}

func messageNumber(m *relay.Message) int64 {
	n, err := strconv.ParseInt(string(m.Payload), 10, 64)
	testkit.Must(err)
	return n
}
