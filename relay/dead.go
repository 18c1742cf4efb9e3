package relay

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"math"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// DeadState is the state of a dead letter.
type DeadState string

// The states of a dead letter.
const (
	DeadPending   DeadState = "pending"   // waiting for an operator's decision
	DeadReplaying DeadState = "replaying" // taken by [Queue.Replay], until its HoldUntil
	DeadResolved  DeadState = "resolved"  // handled after all, see [DeadMessage.Resolve]
	DeadDiscarded DeadState = "discarded" // given up, see [Queue.Discard]
)

// DeadFilter selects dead letters in a queue. A nil filter selects all dead letters, and a zero
// field does not restrict the selection. A negative Partition or Limit, an invalid Key, or an
// unknown State results in [honker.ErrInvalid].
type DeadFilter struct {
	Partition *int
	Key       string // as in Outgoing; messages sent before keys were stored have none
	Type      string
	State     DeadState // stored state; a dead letter whose hold has expired stays DeadReplaying until the next Replay takes it
	Since     time.Time // only messages that died at or after this time, in whole milliseconds
	Limit     int       // maximum number of dead letters
}

// DeadMessage is a message that its queue no longer delivers, because a handler rejected it or its
// attempts were exhausted. Its partition has continued without it. Seq, and therefore
// IdempotencyKey, is the same as for the original message. Attempt is the number of attempts,
// including rejected replays.
type DeadMessage struct {
	Message
	LastError string // of the last attempt
	DiedAt    time.Time
	State     DeadState
	HoldUntil time.Time // end of the hold if State is DeadReplaying; after that, other callers may take the dead letter
	SettledAt time.Time // set if State is DeadResolved or DeadDiscarded

	queue  *Queue
	holder string
}

// deadPage is the number of dead letters read at a time.
const deadPage = 100

// Dead returns an iterator over the dead letters that f selects, in the order in which their
// messages were committed. It never waits for the writer. It reads page by page, so it may or may
// not yield dead letters that change during the iteration. With a Key it reads only the dead letters
// of that key. Any other filter is applied to all dead letters of the queue.
//
// If an error occurs or ctx ends, the iterator yields a nil dead letter with the error and stops.
func (q *Queue) Dead(ctx context.Context, f *DeadFilter) iter.Seq2[*DeadMessage, error] {
	return func(yield func(*DeadMessage, error) bool) {
		selected, err := q.selects(f)
		after, left := int64(0), f.limit()
		for err == nil && left > 0 {
			var page []row.RelayDead
			if page, err = q.deadAbove(ctx, selected, after, min(left, deadPage)); len(page) == 0 {
				break
			}
			for _, row := range page {
				if !yield(q.newDead(row, ""), nil) {
					return
				}
			}
			after, left = page[len(page)-1].ID, left-len(page)
		}
		if err != nil {
			yield(nil, q.fail("list dead letters", err))
		}
	}
}

func (q *Queue) deadAbove(ctx context.Context, f row.RelayDeadFilter, after int64, limit int) (page []row.RelayDead, err error) {
	err = q.read(ctx, func(ctx context.Context, tx engine.Querier) (err error) {
		page, err = q.relay.store.Dead(ctx, tx, f, after, limit)
		return err
	})
	return page, err
}

// CountDead returns the number of dead letters that [Queue.Dead] would yield. It never waits for the
// writer. Without a filter, or with a filter by State only, it reads an index entry for each counted
// dead letter. With a Key it reads the dead letters of that key, and otherwise all of them.
func (q *Queue) CountDead(ctx context.Context, f *DeadFilter) (n int64, err error) {
	selected, err := q.selects(f)
	if err == nil {
		err = q.read(ctx, func(ctx context.Context, tx engine.Querier) (err error) {
			n, err = q.relay.store.CountDead(ctx, tx, selected)
			return err
		})
	}
	return min(n, int64(f.limit())), q.fail("count dead letters", err)
}

// Replay takes up to n dead letters that f selects and holds them for the caller. Until hold has
// passed, no other Replay in any process returns them. The caller must settle each of them with
// [DeadMessage.Resolve] or [DeadMessage.Reject] within that time. Replay takes pending dead letters
// and those whose hold has expired. Dead letters that were never taken come first, in the order in
// which their messages were committed, followed by the least recently taken. Replay may return fewer
// than n if payloads are large, but it returns none only if there are none.
//
// Replay doesn't run the queue's handler. Use [Queue.Requeue] to return a dead letter to the
// handler.
//
// Replay waits for the writer until ctx ends or BusyTimeout has passed. n and hold must be positive,
// and the filter must not select DeadResolved or DeadDiscarded; otherwise Replay returns
// [honker.ErrInvalid].
func (q *Queue) Replay(ctx context.Context, n int, hold time.Duration, f *DeadFilter) ([]*DeadMessage, error) {
	dead, err := q.replay(ctx, n, hold, f)
	return dead, q.fail("replay", err)
}

func (q *Queue) replay(ctx context.Context, n int, hold time.Duration, f *DeadFilter) ([]*DeadMessage, error) {
	selected, err := q.selects(f)
	err = errors.Join(err, engine.Positive("hold", hold))
	if n <= 0 {
		err = errors.Join(err, fmt.Errorf("%w: the number of dead letters must be positive, got %d", engine.ErrInvalid, n))
	}
	if f != nil && (f.State == DeadResolved || f.State == DeadDiscarded) {
		err = errors.Join(err, fmt.Errorf("%w: %s dead letters cannot be replayed", engine.ErrInvalid, f.State))
	}
	if err != nil {
		return nil, err
	}
	holder := rand.Text()
	var rows []row.RelayDead
	err = q.write(ctx, func(ctx context.Context, tx engine.Querier, now time.Time) (err error) {
		p := row.RelayReplay{RelayDeadFilter: selected, Limit: min(n, f.limit()), Holder: holder, Until: now.Add(hold)}
		rows, err = q.relay.store.Replay(ctx, tx, p, now)
		return err
	})
	if err != nil {
		return nil, err
	}
	dead := make([]*DeadMessage, len(rows))
	for i, row := range rows {
		dead[i] = q.newDead(row, holder)
	}
	return dead, nil
}

// Resolve marks a dead letter as handled. It remains in the database as DeadResolved until
// [Queue.CleanupDead] deletes it. Resolve waits for the writer until ctx ends or BusyTimeout has
// passed. It returns [honker.ErrClaimLost] if the dead letter wasn't taken by [Queue.Replay], if it's
// already settled, or if its hold has expired.
func (d *DeadMessage) Resolve(ctx context.Context) error {
	err := d.settle(ctx, row.RelayVerdict{Resolved: true})
	return engine.WrapID("resolve dead letter", d.ID, err)
}

// Reject returns a dead letter after a failed replay. The dead letter becomes pending again, its
// attempts increase by 1, and cause becomes its LastError; cause may be nil. Reject waits for the
// writer until ctx ends or BusyTimeout has passed. It returns [honker.ErrClaimLost] if the dead
// letter wasn't taken by [Queue.Replay], if it's already settled, or if its hold has expired.
func (d *DeadMessage) Reject(ctx context.Context, cause error) error {
	err := d.settle(ctx, row.RelayVerdict{Cause: engine.Describe(cause)})
	return engine.WrapID("reject dead letter", d.ID, err)
}

func (d *DeadMessage) settle(ctx context.Context, v row.RelayVerdict) error {
	if d.queue == nil || d.holder == "" {
		return engine.ErrClaimLost
	}
	held := false
	hold := row.RelayHold{ID: d.ID, Queue: d.queue.name, Holder: d.holder}
	err := d.queue.write(ctx, func(ctx context.Context, tx engine.Querier, now time.Time) (err error) {
		held, err = d.queue.relay.store.SettleDead(ctx, tx, hold, v, now)
		return err
	})
	if err == nil && !held {
		return engine.ErrClaimLost
	}
	return err
}

// Requeue resends dead letters in a single transaction and returns how many it resent. Each becomes
// the last message of its partition, with a new ID, Seq and CreatedAt, and is no longer a dead
// letter. Requeue skips unknown IDs, IDs from other queues, and dead letters that are held, resolved
// or discarded. A dead letter whose hold has expired is requeued. Requeue waits for the writer until
// ctx ends or BusyTimeout has passed.
func (q *Queue) Requeue(ctx context.Context, ids ...int64) (int, error) {
	var sent []int64
	err := q.write(ctx, func(ctx context.Context, tx engine.Querier, now time.Time) (err error) {
		sent, err = q.relay.store.Requeue(ctx, tx, q.name, ids, now)
		return err
	})
	if err != nil || len(sent) == 0 {
		return 0, q.fail("requeue", err)
	}
	q.relay.engine.Notifier.Wake(q.change())
	q.relay.opts.Observer.Sent(Sent{Queue: q.name, IDs: sent})
	return len(sent), nil
}

// Discard gives up on dead letters in a single transaction and returns how many it discarded. They
// remain in the database as DeadDiscarded until [Queue.CleanupDead] deletes them. Discard skips the
// same IDs as [Queue.Requeue]. It waits for the writer until ctx ends or BusyTimeout has passed.
func (q *Queue) Discard(ctx context.Context, ids ...int64) (n int, err error) {
	err = q.write(ctx, func(ctx context.Context, tx engine.Querier, now time.Time) (err error) {
		n, err = q.relay.store.Discard(ctx, tx, q.name, ids, now)
		return err
	})
	return n, q.fail("discard", err)
}

// CleanupDead deletes the dead letters that were resolved or discarded at least olderThan ago; 0
// deletes all of them, and a negative olderThan is [honker.ErrInvalid]. It returns the number of
// deleted dead letters, even with an error. CleanupDead blocks until it is done. It deletes in
// transactions of a few milliseconds, and other writers run in the pauses between them. If ctx ends,
// it stops between two transactions.
func (q *Queue) CleanupDead(ctx context.Context, olderThan time.Duration) (int, error) {
	n, err := q.cleanupDead(ctx, olderThan)
	return n, q.fail("clean up dead letters", err)
}

func (q *Queue) cleanupDead(ctx context.Context, olderThan time.Duration) (int, error) {
	if err := errors.Join(q.err, engine.NotNegative("age", olderThan), q.relay.engine.RefuseInTx(ctx, "")); err != nil {
		return 0, err
	}
	sweep := engine.Sweep{
		Find: func(ctx context.Context, tx engine.Querier, _ row.Part, at time.Time, limit int) ([]int64, error) {
			if found, err := q.inFile(ctx, tx); err != nil || !found {
				return nil, err
			}
			return q.relay.store.SettledDead(ctx, tx, q.name, at, limit)
		},
		Take: func(ctx context.Context, tx engine.Querier, _ row.Part, ids []int64, at time.Time, _ int) (row.Swept, error) {
			n, err := q.relay.store.DropDead(ctx, tx, q.name, at, ids)
			return row.Swept{N: n}, err
		},
	}
	return q.relay.engine.InChunks(ctx, sweep, row.Part{}, olderThan, nil)
}

// selects validates the queue and f and converts f to the store's filter.
func (q *Queue) selects(f *DeadFilter) (row.RelayDeadFilter, error) {
	out := row.RelayDeadFilter{Queue: q.name}
	if f == nil || q.err != nil {
		return out, q.err
	}
	out.Partition, out.Key, out.Type, out.State, out.Since = f.Partition, f.Key, f.Type, string(f.State), f.Since
	return out, f.check()
}

func (f *DeadFilter) check() error {
	err := notNegative("Limit", f.Limit)
	if f.Partition != nil {
		err = errors.Join(err, notNegative("Partition", *f.Partition))
	}
	if f.Key != "" {
		err = errors.Join(err, engine.CheckName("key", f.Key))
	}
	switch f.State {
	case "", DeadPending, DeadReplaying, DeadResolved, DeadDiscarded:
		return err
	}
	return errors.Join(err, fmt.Errorf("%w: unknown state %q of dead letters", engine.ErrInvalid, f.State))
}

// limit returns the maximum number of dead letters that f selects.
func (f *DeadFilter) limit() int {
	if f == nil || f.Limit <= 0 {
		return math.MaxInt
	}
	return f.Limit
}

func (q *Queue) newDead(row row.RelayDead, holder string) *DeadMessage {
	return &DeadMessage{
		Message: Message{
			Queue: q.name, Partition: int(row.Partition), Seq: row.Seq, ID: row.ID, Key: row.Key, Type: row.Type,
			Payload: row.Payload, CreatedAt: row.CreatedAt, Attempt: int(row.Attempts),
		},
		LastError: row.LastError, DiedAt: row.DiedAt, State: DeadState(row.State), HoldUntil: row.HoldUntil, SettledAt: row.SettledAt,
		queue: q, holder: holder,
	}
}
