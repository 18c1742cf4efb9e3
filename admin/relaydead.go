package admin

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/wake"
)

// RelayDead is a dead letter of package relay.
type RelayDead struct {
	ID        int64
	Partition int
	Seq       int64
	Key, Type string
	Payload   []byte
	Attempts  int64
	LastError string
	State     string // a relay.DeadState: "pending", "replaying", "resolved" or "discarded"
	CreatedAt time.Time
	DiedAt    time.Time
	HoldUntil time.Time // end of the hold if State is "replaying"
	SettledAt time.Time // set if State is "resolved" or "discarded"
}

// RelayDeadFilter selects dead letters of a relay queue. A zero field other than Queue does not restrict the selection.
type RelayDeadFilter struct {
	Family, Queue string // as in RelayInfo
	Partition     *int
	Key, Type     string
	State         string    // as in RelayDead
	Since         time.Time // only messages that died at or after this time, in whole milliseconds
	After         int64     // only dead letters with higher IDs, such as the last ID of the previous page
}

// relayDeadPage is the number of dead letters that are read at a time.
const relayDeadPage = 100

// EachRelayDead returns an iterator over the dead letters that f selects, in ID order. It reads page by page, so it may
// or may not yield dead letters that change during the iteration. It never waits for the writer. After an error it
// yields a zero RelayDead with the error and stops. The error is [honker.ErrNotFound] if the queue is unknown, and
// [honker.ErrInvalid] if a field of f is invalid or db is nil.
func EachRelayDead(ctx context.Context, db *honker.DB, f RelayDeadFilter) iter.Seq2[RelayDead, error] {
	return func(yield func(RelayDead, error) bool) {
		err := f.check()
		for after := f.After; err == nil; {
			var page []row.RelayDead
			page, err = relayDeadAbove(ctx, db, f, after)
			if err == nil && len(page) == 0 {
				return
			}
			for _, r := range page {
				if !yield(relayDeadOf(r), nil) {
					return
				}
				after = r.ID
			}
		}
		yield(RelayDead{}, engine.Wrap("list relay dead letters", f.Queue, err))
	}
}

func relayDeadAbove(ctx context.Context, db *honker.DB, f RelayDeadFilter, after int64) (page []row.RelayDead, err error) {
	err = read(ctx, db, func(ctx context.Context, q engine.Querier, s *engine.Stores) error {
		if err := knownRelay(ctx, q, s, f.Family, f.Queue); err != nil {
			return err
		}
		of := row.RelayDeadFilter{Queue: f.Queue, Partition: f.Partition, Key: f.Key, Type: f.Type, State: f.State, Since: f.Since}
		page, err = s.Relays.Family(f.Family).Dead(ctx, q, of, after, relayDeadPage)
		return err
	})
	return page, err
}

func (f *RelayDeadFilter) check() error {
	err := engine.CheckName("queue", f.Queue)
	if f.Key != "" {
		err = errors.Join(err, engine.CheckName("key", f.Key))
	}
	if f.Partition != nil && *f.Partition < 0 {
		err = errors.Join(err, fmt.Errorf("%w: Partition must not be negative, but is %d", honker.ErrInvalid, *f.Partition))
	}
	switch f.State {
	case "", row.RelayPending, row.RelayReplaying, row.RelayResolved, row.RelayDiscarded:
		return err
	}
	return errors.Join(err, fmt.Errorf("%w: unknown state %q of dead letters", honker.ErrInvalid, f.State))
}

// knownRelay returns [honker.ErrNotFound] unless the queue is registered.
func knownRelay(ctx context.Context, q engine.Querier, s *engine.Stores, family, queue string) error {
	all, err := s.Relays.Registered(ctx, q)
	if err != nil {
		return err
	}
	for _, r := range all {
		if r.Family == family && r.Queue == queue {
			return nil
		}
	}
	return honker.ErrNotFound
}

func relayDeadOf(r row.RelayDead) RelayDead {
	return RelayDead{
		ID: r.ID, Partition: int(r.Partition), Seq: r.Seq, Key: r.Key, Type: r.Type, Payload: r.Payload, Attempts: r.Attempts,
		LastError: r.LastError, State: r.State, CreatedAt: r.CreatedAt, DiedAt: r.DiedAt, HoldUntil: r.HoldUntil, SettledAt: r.SettledAt,
	}
}

// RequeueRelayDead resends dead letters of a relay queue and returns how many it resent, even with an error. Each
// becomes the last message of its partition and is no longer a dead letter. Unknown IDs and dead letters that are held,
// resolved or discarded are skipped.
//
// RequeueRelayDead waits for the writer until ctx ends. It works in transactions of a few milliseconds with pauses in
// between, and does nothing without IDs. It returns [honker.ErrNotFound] if the queue is unknown, and [honker.ErrInvalid] if a name is invalid or db is nil.
func RequeueRelayDead(ctx context.Context, db *honker.DB, family, queue string, ids ...int64) (int, error) {
	change := relayDeadChange{"requeue relay dead letter", family, queue}
	n, err := change.run(ctx, db, ids, func(ctx context.Context, q engine.Querier, s engine.RelayStore, ids []int64, now time.Time) (int, error) {
		sent, err := s.Requeue(ctx, q, queue, ids, now)
		return len(sent), err
	})
	if n > 0 {
		engine.Of(db).Notifier.Wake(wake.Relay(wake.RelayName(family, queue)))
	}
	return n, err
}

// DiscardRelayDead gives up on dead letters of a relay queue and returns how many it discarded, even with an error.
// They remain in the database until relay.Queue.CleanupDead deletes them. It skips the same dead letters, waits in the
// same way and returns the same errors as [RequeueRelayDead].
func DiscardRelayDead(ctx context.Context, db *honker.DB, family, queue string, ids ...int64) (int, error) {
	change := relayDeadChange{"discard relay dead letter", family, queue}
	return change.run(ctx, db, ids, func(ctx context.Context, q engine.Querier, s engine.RelayStore, ids []int64, now time.Time) (int, error) {
		return s.Discard(ctx, q, queue, ids, now)
	})
}

// relayDeadChange is a verb on dead letters of a relay queue.
type relayDeadChange struct{ verb, family, queue string }

// run calls do for the dead letters in ids, lowest first, and returns the number of changed dead letters.
func (c relayDeadChange) run(ctx context.Context, db *honker.DB, ids []int64, do func(context.Context, engine.Querier, engine.RelayStore, []int64, time.Time) (int, error)) (changed int, err error) {
	e, err := engineOf(db)
	if err := errors.Join(err, engine.CheckName("queue", c.queue)); err != nil {
		return 0, engine.Wrap(c.verb, c.queue, err)
	}
	ids = slices.Sorted(slices.Values(ids))
	audit, pace := e.NewAudit(ctx, c.verb, c.target(ids)), e.NewPace()
	for len(ids) > 0 && err == nil {
		part := ids[:min(pace.Size, len(ids), chunkLimit)]
		n, noted := 0, func() {}
		err = pace.Write(ctx, func(ctx context.Context, q engine.Querier, now time.Time) (err error) {
			if err = knownRelay(ctx, q, &e.Stores, c.family, c.queue); err != nil {
				return err
			}
			if n, err = do(ctx, q, e.Stores.Relays.Family(c.family), part, now); err == nil {
				_, noted, err = audit.Note(ctx, q, now, int64(n))
			}
			return err
		})
		if err != nil {
			break
		}
		noted()
		changed += n
		if ids = ids[len(part):]; len(ids) > 0 {
			err = pace.Rest(ctx)
		}
	}
	return changed, engine.Wrap(c.verb, c.queue, err)
}

// target names the queue and the first dead letters for the audit log.
func (c relayDeadChange) target(ids []int64) string {
	texts := make([]string, 0, auditList)
	for _, id := range first(ids) {
		texts = append(texts, strconv.FormatInt(id, 10))
	}
	pairs := []string{"relay queue", c.queue, "dead letters", strings.Join(texts, " ")}
	if c.family != "" {
		pairs = append(pairs, "family", c.family)
	}
	return engine.AuditTarget(pairs...)
}
