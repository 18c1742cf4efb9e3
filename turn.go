package honker

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/honker-go/honker/internal/store"
)

// turn is a crew's sqlite.Op: it settles what is done, and claims.
type turn struct {
	claiming
	crew    *crew
	done    []*hand
	careful bool // some claim was lost: ask which
}

// Run implements sqlite.Op.
func (t *turn) Run(ctx context.Context, q store.Querier, now time.Time) (err error) {
	if err := t.ack(ctx, q, now); err != nil {
		return err
	}
	for _, h := range t.done {
		if h.end != nil && !h.end.together() {
			if err := h.end.Run(ctx, q, now); err != nil {
				return err
			}
		}
	}
	if t.want > 0 {
		err = t.claiming.Run(ctx, q, now)
	}
	return err
}

// errUncertain undoes a turn in which some claim was lost, to find out which.
var errUncertain = errors.New("some claim was lost")

// ack settles all jobs that succeeded: one statement for each attempt number.
func (t *turn) ack(ctx context.Context, q store.Querier, now time.Time) error {
	byAttempt := make(map[int64][]int64, 1)
	for _, h := range t.done {
		if h.end != nil && h.end.together() {
			byAttempt[h.claim.Attempt] = append(byAttempt[h.claim.Attempt], h.claim.ID)
		}
	}
	lost := make(map[int64]bool)
	for attempt, ids := range byAttempt {
		if err := t.ackAttempt(ctx, q, ids, attempt, now.Unix(), lost); err != nil {
			return err
		}
	}
	for _, h := range t.done {
		if h.end == nil || !h.end.together() {
			continue
		}
		h.end.ended(!lost[h.claim.ID], false)
		if err := h.end.saveResult(ctx, q, now.Unix()); err != nil {
			return err
		}
	}
	return nil
}

// ackAttempt adds to lost. The first try only counts: a lost claim is rare.
func (t *turn) ackAttempt(ctx context.Context, q store.Querier, ids []int64, attempt, now int64, lost map[int64]bool) error {
	worker := t.crew.opts.WorkerID
	if !t.careful {
		n, err := store.Jobs{}.AckAttempt(ctx, q, ids, worker, attempt, now)
		if err == nil && n < len(ids) {
			err = errUncertain
		}
		return err
	}
	kept, err := store.Jobs{}.AckAttemptIDs(ctx, q, ids, worker, attempt, now)
	for _, id := range ids {
		if !slices.Contains(kept, id) {
			lost[id] = true
		}
	}
	return err
}
