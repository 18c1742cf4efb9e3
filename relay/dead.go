package relay

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"math"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/store"
)

// DeadState is where a dead letter is in its life.
type DeadState string

// The states of a dead letter.
const (
	DeadPending   DeadState = "pending"   // it waits for a decision
	DeadReplaying DeadState = "replaying" // [Queue.Replay] has given it out, until its HoldUntil
	DeadResolved  DeadState = "resolved"  // it was handled after all, see [DeadMessage.Resolve]
	DeadDiscarded DeadState = "discarded" // it was given up, see [Queue.Discard]
)

// DeadFilter selects dead letters of a queue. A nil filter, and the zero value of a field,
// select all. A negative Partition or Limit, a bad Key and an unknown State are
// [honker.ErrInvalid].
type DeadFilter struct {
	Partition *int
	Key       string // as in Outgoing; messages of before keys were stored have none
	Type      string
	State     DeadState // as in the file: DeadReplaying also when the hold is over, until it is taken again
	Since     time.Time // it died then or later, in whole milliseconds
	Limit     int       // at most so many
}

// DeadMessage is a message that its queue delivers no more: a handler has rejected it, or its
// attempts were spent. Its partition has gone on without it. Seq, and with it the
// IdempotencyKey, is the number that it had there. Attempt is how often it was tried, replays
// that were rejected included.
type DeadMessage struct {
	Message
	LastError string // of the last attempt
	DiedAt    time.Time
	State     DeadState
	HoldUntil time.Time // of a DeadReplaying one: after that others may take it
	SettledAt time.Time // of a DeadResolved or DeadDiscarded one

	queue  *Queue
	holder string
}

// deadStore are the statements on dead letters.
type deadStore interface {
	Dead(ctx context.Context, q engine.Querier, f row.RelayDeadFilter, after int64, limit int) ([]row.RelayDead, error)
	CountDead(ctx context.Context, q engine.Querier, f row.RelayDeadFilter) (int64, error)
	Replay(ctx context.Context, q engine.Querier, f row.RelayDeadFilter, limit int, holder string, nowMS, untilMS int64) ([]row.RelayDead, error)
	Resolve(ctx context.Context, q engine.Querier, h row.RelayHold, nowMS int64) (bool, error)
	RejectDead(ctx context.Context, q engine.Querier, h row.RelayHold, cause string, nowMS int64) (bool, error)
	Requeue(ctx context.Context, q engine.Querier, queue string, ids []int64, nowMS int64) ([]int64, error)
	Discard(ctx context.Context, q engine.Querier, queue string, ids []int64, nowMS int64) (int, error)
	SettledDead(ctx context.Context, q engine.Querier, queue string, unixMS int64, limit int) ([]int64, error)
	DropDead(ctx context.Context, q engine.Querier, queue string, ids []int64, unixMS int64) (int, error)
}

func (q *Queue) letters() deadStore { return store.Relays{Family: q.relay.opts.Family} }

// deadPage is how many dead letters are read at a time.
const deadPage = 100

// Dead yields the dead letters that f selects, in the order in which the messages were
// committed, and ends. It never waits for the writer, and reads page by page: what is changed
// meanwhile may come or not. With a Key it reads the dead letters of that key. Otherwise it passes
// over what f does not select, so it costs a read of all dead letters.
//
// An error, also the end of ctx, comes without a dead letter and is the last.
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
			yield(nil, q.fail("dead letters", err))
		}
	}
}

func (q *Queue) deadAbove(ctx context.Context, f row.RelayDeadFilter, after int64, limit int) (page []row.RelayDead, err error) {
	err = q.read(ctx, func(ctx context.Context, tx engine.Querier) (err error) {
		letters, err := q.lettersIn(ctx, tx)
		if err != nil {
			return err
		}
		page, err = letters.Dead(ctx, tx, f, after, limit)
		return err
	})
	return page, err
}

// lettersIn are the statements for a file that may have been left by an earlier version, which a
// read does not change.
func (q *Queue) lettersIn(ctx context.Context, tx engine.Querier) (deadStore, error) {
	current, err := q.relay.store.Current(ctx, tx)
	return store.Relays{Family: q.relay.opts.Family, Keyless: !current}, err
}

// CountDead returns how many dead letters [Queue.Dead] would yield. It never waits for the
// writer. Without a filter, or by State alone, it reads an entry of an index for each; with a Key
// each dead letter of that key; otherwise each dead letter.
func (q *Queue) CountDead(ctx context.Context, f *DeadFilter) (n int64, err error) {
	selected, err := q.selects(f)
	if err == nil {
		err = q.read(ctx, func(ctx context.Context, tx engine.Querier) error {
			letters, err := q.lettersIn(ctx, tx)
			if err != nil {
				return err
			}
			n, err = letters.CountDead(ctx, tx, selected)
			return err
		})
	}
	return min(n, int64(f.limit())), q.fail("count dead letters", err)
}

// Replay takes up to n of the dead letters that f selects, for the caller alone: no other Replay,
// of any process, gets them before hold is over, and each is to be settled by
// [DeadMessage.Resolve] or [DeadMessage.Reject] until then. It takes those that are pending and
// those of which a hold is over. What has never been taken comes first, in the order in which the
// messages were committed, and then what was taken longest ago. It may return fewer where
// payloads are large; none means that there is none.
//
// It does not run the queue's handler: what to do with a dead letter is the caller's choice.
// [Queue.Requeue] gives it back to the handler.
//
// It waits for the writer until ctx ends or BusyTimeout has passed. n and hold have to be
// positive, and a filter by DeadResolved or DeadDiscarded selects nothing that could be taken:
// both are [honker.ErrInvalid].
func (q *Queue) Replay(ctx context.Context, n int, hold time.Duration, f *DeadFilter) ([]*DeadMessage, error) {
	dead, err := q.replay(ctx, n, hold, f)
	return dead, q.fail("replay", err)
}

func (q *Queue) replay(ctx context.Context, n int, hold time.Duration, f *DeadFilter) ([]*DeadMessage, error) {
	selected, err := q.selects(f)
	err = errors.Join(err, engine.Positive("hold", hold))
	if n <= 0 {
		err = errors.Join(err, fmt.Errorf("%w: %d dead letters", engine.ErrInvalid, n))
	}
	if f != nil && (f.State == DeadResolved || f.State == DeadDiscarded) {
		err = errors.Join(err, fmt.Errorf("%w: nothing that is %s can be replayed", engine.ErrInvalid, f.State))
	}
	if err != nil {
		return nil, err
	}
	holder := rand.Text()
	var rows []row.RelayDead
	err = q.write(ctx, func(ctx context.Context, tx engine.Querier, now time.Time) (err error) {
		until := engine.DeadlineMS(now, hold)
		rows, err = q.letters().Replay(ctx, tx, selected, min(n, f.limit()), holder, now.UnixMilli(), until)
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

// Resolve settles a dead letter that was handled after all. It stays in the file as DeadResolved
// until [Queue.CleanupDead]. It waits for the writer until ctx ends or BusyTimeout has passed.
// [honker.ErrClaimLost]: it was not taken by [Queue.Replay], it is settled, or its hold is over.
func (d *DeadMessage) Resolve(ctx context.Context) error {
	err := d.settle(ctx, func(ctx context.Context, tx engine.Querier, h row.RelayHold, nowMS int64) (bool, error) {
		return d.queue.letters().Resolve(ctx, tx, h, nowMS)
	})
	return engine.WrapID("resolve dead letter", d.ID, err)
}

// Reject returns a dead letter after a replay that has failed. It is pending again, with one
// attempt more and cause as its LastError; a nil cause is none. It waits for the writer until
// ctx ends or BusyTimeout has passed. [honker.ErrClaimLost]: it was not taken by
// [Queue.Replay], it is settled, or its hold is over.
func (d *DeadMessage) Reject(ctx context.Context, cause error) error {
	text := engine.Describe(cause)
	err := d.settle(ctx, func(ctx context.Context, tx engine.Querier, h row.RelayHold, nowMS int64) (bool, error) {
		return d.queue.letters().RejectDead(ctx, tx, h, text, nowMS)
	})
	return engine.WrapID("reject dead letter", d.ID, err)
}

// settleDead is a statement that needs a hold; false when that is over.
type settleDead func(ctx context.Context, tx engine.Querier, h row.RelayHold, nowMS int64) (bool, error)

func (d *DeadMessage) settle(ctx context.Context, do settleDead) error {
	if d.queue == nil || d.holder == "" {
		return engine.ErrClaimLost
	}
	held := false
	hold := row.RelayHold{ID: d.ID, Queue: d.queue.name, Holder: d.holder}
	err := d.queue.write(ctx, func(ctx context.Context, tx engine.Querier, now time.Time) (err error) {
		held, err = do(ctx, tx, hold, now.UnixMilli())
		return err
	})
	if err == nil && !held {
		return engine.ErrClaimLost
	}
	return err
}

// Requeue sends dead letters again, in one transaction: each becomes the last message of its
// partition, with a new ID and Seq and the time of now, and is a dead letter no more. It returns
// how many. Of ids it takes those of this queue that are pending or of which a hold is over; those
// that are held, resolved or discarded, and ids that do not exist, are left as they are. It
// waits for the writer until ctx ends or BusyTimeout has passed.
func (q *Queue) Requeue(ctx context.Context, ids ...int64) (int, error) {
	var sent []int64
	err := q.write(ctx, func(ctx context.Context, tx engine.Querier, now time.Time) (err error) {
		sent, err = q.letters().Requeue(ctx, tx, q.name, ids, now.UnixMilli())
		return err
	})
	if err != nil || len(sent) == 0 {
		return 0, q.fail("requeue", err)
	}
	q.relay.engine.Notifier.Wake(q.change())
	q.relay.opts.Observer.Sent(Sent{Queue: q.name, IDs: sent})
	return len(sent), nil
}

// Discard gives dead letters up, in one transaction, and returns how many. They stay in the file
// as DeadDiscarded until [Queue.CleanupDead]. Of ids it takes those that [Queue.Requeue] would.
// It waits for the writer until ctx ends or BusyTimeout has passed.
func (q *Queue) Discard(ctx context.Context, ids ...int64) (n int, err error) {
	err = q.write(ctx, func(ctx context.Context, tx engine.Querier, now time.Time) (err error) {
		n, err = q.letters().Discard(ctx, tx, q.name, ids, now.UnixMilli())
		return err
	})
	return n, q.fail("discard", err)
}

// CleanupDead deletes dead letters that were resolved or discarded at least olderThan ago, and no
// others; 0 is all of them, and less is [honker.ErrInvalid]. It returns how many, also with an
// error. It blocks until that is done, in transactions of some milliseconds with pauses between
// them, in which other writers get the file; ctx ends it between two of them.
func (q *Queue) CleanupDead(ctx context.Context, olderThan time.Duration) (int, error) {
	n, err := q.cleanupDead(ctx, olderThan)
	return n, q.fail("clean up dead letters", err)
}

func (q *Queue) cleanupDead(ctx context.Context, olderThan time.Duration) (int, error) {
	if err := errors.Join(q.err, engine.NotNegative("age", olderThan), q.relay.engine.RefuseInTx(ctx, "")); err != nil {
		return 0, err
	}
	before := func(now time.Time) int64 { return now.Add(-olderThan).UnixMilli() }
	find := func(ctx context.Context, tx engine.Querier, now time.Time, limit int) ([]int64, error) {
		if found, err := q.inFile(ctx, tx); err != nil || !found {
			return nil, err
		}
		return q.letters().SettledDead(ctx, tx, q.name, before(now), limit)
	}
	drop := func(ctx context.Context, tx engine.Querier, ids []int64, now time.Time) (int, error) {
		return q.letters().DropDead(ctx, tx, q.name, ids, before(now))
	}
	return q.relay.engine.InChunks(ctx, find, drop, nil)
}

// selects checks a filter and the queue, and turns the filter into that of the store.
func (q *Queue) selects(f *DeadFilter) (row.RelayDeadFilter, error) {
	out := row.RelayDeadFilter{Queue: q.name}
	if f == nil || q.err != nil {
		return out, q.err
	}
	out.Key, out.Type, out.State = f.Key, f.Type, string(f.State)
	if f.Partition != nil {
		out.Partition = sql.NullInt64{Int64: int64(*f.Partition), Valid: true}
	}
	if !f.Since.IsZero() {
		out.SinceMS = f.Since.UnixMilli()
	}
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
	return errors.Join(err, fmt.Errorf("%w: there is no state %q of dead letters", engine.ErrInvalid, f.State))
}

// limit is how many f lets through.
func (f *DeadFilter) limit() int {
	if f == nil || f.Limit <= 0 {
		return math.MaxInt
	}
	return f.Limit
}

func (q *Queue) newDead(row row.RelayDead, holder string) *DeadMessage {
	d := &DeadMessage{
		Message: Message{
			Queue: q.name, Partition: int(row.Partition), Seq: row.Seq, ID: row.ID, Key: row.Key, Type: row.Type,
			Payload: row.Payload, CreatedAt: engine.InstantMS(row.CreatedMS), Attempt: int(row.Attempts),
		},
		LastError: row.LastError, DiedAt: engine.InstantMS(row.DiedMS), State: DeadState(row.State),
		queue: q, holder: holder,
	}
	switch d.State {
	case DeadReplaying:
		d.HoldUntil = engine.InstantMS(row.MovedMS)
	case DeadResolved, DeadDiscarded:
		d.SettledAt = engine.InstantMS(row.MovedMS)
	}
	return d
}
