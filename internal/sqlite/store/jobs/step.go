package jobs

import (
	"context"
	"errors"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// Step ends the claims in s.Settle and then makes the claim s.Claim. It sets each settlement's outcome.
//
// Acks of jobs with the same attempt number share a statement, which at first only counts rows, because
// returning the ids costs a third more. If there are fewer rows than ids, a claim was lost. Unless s is
// exact, Step then returns ErrClaimsLost, and the transaction must be rolled back.
func (j Jobs) Step(ctx context.Context, q row.Querier, s row.Step, now time.Time) (row.Claimed, error) {
	if s.Alone {
		return row.Claimed{}, j.settleOne(ctx, q, s.Settle[0], true, now)
	}
	if err := j.settle(ctx, q, s.Settle, s.Exact, now); err != nil {
		return row.Claimed{}, err
	}
	if s.Claim == nil || s.Claim.N == 0 {
		return row.Claimed{}, nil
	}
	return j.claim(ctx, q, s.Claim, now)
}

// settle ends the claims in all.
func (j Jobs) settle(ctx context.Context, q row.Querier, all []*row.Settlement, exact bool, now time.Time) error {
	if len(all) == 0 {
		return nil
	}
	for _, s := range all {
		s.Became, s.Gone = "", false
	}
	if err := j.settleProgress(ctx, q, all, now.Unix()); err != nil {
		return err
	}
	if err := j.ackTogether(ctx, q, all, exact, now); err != nil {
		return err
	}
	// Outcomes other than a plain ack are rare. Each takes its own statements.
	var failed []row.Attempt
	for _, s := range all {
		if s.Became != "" {
			continue
		}
		if err := j.settleOne(ctx, q, s, false, now); err != nil {
			return err
		}
		if s.Failed() {
			failed = append(failed, attemptOf(s, now))
		}
	}
	return j.AddAttempts(ctx, q, failed)
}

// settleProgress saves the progress in all. Dead jobs keep their progress, and so do done jobs that are
// kept.
func (j Jobs) settleProgress(ctx context.Context, q row.Querier, all []*row.Settlement, now int64) error {
	var acked, others []row.ProgressOf
	for _, s := range all {
		if s.Progress == nil || s.Outcome == row.Cancelled { // the usual case
			continue
		}
		p := row.ProgressOf{ID: s.ID, Attempt: s.Attempt, Progress: *s.Progress}
		if s.Outcome == row.Acked {
			acked = append(acked, p)
		} else {
			others = append(others, p)
		}
	}
	if err := j.saveProgress(ctx, q, acked, all[0].Worker, true, now); err != nil {
		return err
	}
	return j.saveProgress(ctx, q, others, all[0].Worker, false, now)
}

// ackTogether acks jobs with the same attempt number by a single statement. Most jobs in a batch are on
// their first attempt. It leaves to settleOne the jobs whose attempt number no other job shares, and those
// that may already have been settled, because for these a missing claim is not a loss.
func (j Jobs) ackTogether(ctx context.Context, q row.Querier, all []*row.Settlement, exact bool, now time.Time) error {
	if len(all) == 1 {
		return nil
	}
	ids := make([]int64, 0, len(all))
	together := func(s *row.Settlement, attempt int64) bool {
		return s.Became == "" && s.Outcome == row.Acked && !s.Ended && s.Attempt == attempt
	}
	// A settle is fenced by (id, worker, attempt). The worker is the same for the whole step, so jobs with
	// the same attempt number differ only in their ids.
	// equal attempts differ only in their ids.
	for i, first := range all {
		if !together(first, first.Attempt) {
			continue
		}
		ids = ids[:0]
		for _, s := range all[i:] {
			if together(s, first.Attempt) {
				ids = append(ids, s.ID)
			}
		}
		if len(ids) == 1 {
			continue
		}
		lost, err := j.ackAttempt(ctx, q, ids, first.Claim, exact, now.Unix())
		if err != nil {
			return err
		}
		for _, s := range all[i:] {
			if together(s, first.Attempt) {
				s.Became = row.Acked
				if lost[s.ID] {
					s.Became = row.Lost
				}
			}
		}
	}
	// Results come last, because the result of a job with a lost claim must not be saved.
	for _, s := range all {
		var err error
		switch s.Became {
		case row.Acked:
			err = saveResult(ctx, q, s, now)
		case row.Lost:
			err = j.missed(ctx, q, s)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// ackAttempt acks the jobs with the given ids, whose claims have c's worker and attempt, and returns the
// ids of lost claims.
func (j Jobs) ackAttempt(ctx context.Context, q row.Querier, ids []int64, c row.Claim, exact bool, now int64) (lost map[int64]bool, err error) {
	if !exact {
		// No other decision in this transaction may be based on a wrong outcome, so the whole transaction
		// runs again.
		n, err := j.AckAttempt(ctx, q, ids, c.Worker, c.Attempt, now)
		if err == nil && n < len(ids) {
			err = row.ErrClaimsLost
		}
		return nil, err
	}
	// The fence is the same, but the statement returns the ids of the acked rows.
	acked, err := j.AckAttemptIDs(ctx, q, ids, c.Worker, c.Attempt, now)
	if err != nil || len(acked) == len(ids) {
		return nil, err
	}
	lost = make(map[int64]bool)
	for _, id := range ids {
		lost[id] = true
	}
	for _, id := range acked {
		delete(lost, id)
	}
	return lost, nil
}

// settleOne ends s's claim. Every statement is fenced by (id, worker, attempt) and reports whether the
// claim was valid. Only the file knows whether a retried job has attempts left, because the limit is
// stored with the job. If alone is set, there is no transaction, and settleOne returns ErrAwaited if it
// would need one.
func (j Jobs) settleOne(ctx context.Context, q row.Querier, s *row.Settlement, alone bool, now time.Time) (err error) {
	held, died := false, false
	s.Became, s.Gone = "", false
	switch s.Outcome {
	case row.Cancelled:
		s.Became = row.Cancelled
		return j.freePlace(ctx, q, s)
	case row.Acked:
		if alone {
			held, err = j.ackAlone(ctx, q, s.Claim, now.Unix())
		} else {
			held, err = j.Ack(ctx, q, s.Claim, now.Unix())
		}
	case row.Retried:
		due := engine.UnixAfter(now, s.Delay)
		s.RunAt = row.Instant(due)
		held, died, err = j.Retry(ctx, q, s.Claim, due, s.Error, now.Unix())
	case row.Died:
		held, err = j.DeadLetter(ctx, q, s.Claim, s.Error, now.Unix())
	case row.Snoozed:
		held, err = j.snooze(ctx, q, s, now)
	case row.Released:
		held, err = j.PutBack(ctx, q, s.Claim, 0, now.Unix())
	}
	if err != nil {
		return err
	}
	if !held {
		s.Became = row.Lost
		return j.missed(ctx, q, s)
	}
	s.Became = s.Outcome
	if died {
		s.Became = row.Died
	}
	if s.Outcome == row.Acked {
		return saveResult(ctx, q, s, now)
	}
	return nil
}

// snooze does not count the attempt. With SlowDown it also pauses the job's key or queue.
func (j Jobs) snooze(ctx context.Context, q row.Querier, s *row.Settlement, now time.Time) (held bool, err error) {
	until := engine.UnixAfter(now, s.Delay)
	held, err = j.PutBack(ctx, q, s.Claim, until, now.Unix())
	if err != nil || !held || !s.SlowDown || until <= now.Unix() {
		return held, err
	}
	p := row.Pause{Since: now, Until: time.Unix(until, 0), Reason: s.Error}
	return held, j.slowDown(ctx, q, s.Queue, s.ID, p, now.Unix())
}

// saveResult saves an acked job's result, if any, in the ack's transaction, so that a result exists if and
// only if the job is done.
func saveResult(ctx context.Context, q row.Querier, s *row.Settlement, now time.Time) error {
	if s.Result == nil {
		return nil
	}
	err := Results{}.Save(ctx, q, s.ID, *s.Result, s.ResultTTL, now)
	if errors.Is(err, row.ErrNotInserted) {
		return nil // a trigger refused the result; the job is done nevertheless and must not run again
	}
	return err
}

// missed finds out whether the job whose claim was lost is gone.
func (j Jobs) missed(ctx context.Context, q row.Querier, s *row.Settlement) error {
	gone, err := j.Gone(ctx, q, []int64{s.ID})
	if s.Gone = len(gone) > 0; s.Gone {
		return j.freePlace(ctx, q, s)
	}
	return err
}

// freePlace gives up a cancelled job's slot in a queue with limits. The job keeps the slot while the
// handler is running: the handler may have tried to settle the job itself, or may continue after the
// drain.
func (j Jobs) freePlace(ctx context.Context, q row.Querier, s *row.Settlement) error {
	if s.Running {
		return nil
	}
	return j.dropPlace(ctx, q, s.Claim)
}

// attemptOf returns the record of the failed attempt that s ended.
func attemptOf(s *row.Settlement, now time.Time) row.Attempt {
	ran := s.Ran
	if ran == 0 {
		ran = max(0, now.Sub(s.Start))
	}
	return row.Attempt{
		Job: s.ID, N: s.Attempt, Worker: s.Worker, Error: s.Error, Log: s.Log,
		Start: s.Start, Ran: ran,
	}
}
