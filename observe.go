package honker

import (
	"context"
	"errors"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/traffic"
	"github.com/honker-go/honker/internal/worker"
	"github.com/honker-go/honker/observe"
)

// Outcome describes how a claim ended; see package observe.
type Outcome = observe.Outcome

// The outcomes of a claim.
const (
	OutcomeAcked    = observe.OutcomeAcked    // "acked"
	OutcomeRetried  = observe.OutcomeRetried  // "retried"
	OutcomeDied     = observe.OutcomeDied     // "died": the job was dead-lettered
	OutcomeSnoozed  = observe.OutcomeSnoozed  // "snoozed": no attempt was used up
	OutcomeReleased = observe.OutcomeReleased // "released": unfinished when Work ended; no attempt was used up
	OutcomeLost     = observe.OutcomeLost     // "lost": the worker no longer held the claim

	OutcomeCancelled = observe.OutcomeCancelled // "cancelled": the job was cancelled while it was claimed
)

// WithActor returns a copy of ctx that carries the name of the person or program on whose behalf verbs are
// called. The name is passed to the [observe.Observer] and recorded in the file's audit log; see Audit in
// package admin. It is truncated to 1024 bytes.
func WithActor(ctx context.Context, name string) context.Context {
	return engine.WithActor(ctx, name)
}

// deathLines limits the log lines for individual dead jobs in a single call.
const deathLines = 20

// deaths reports jobs in a queue that a call dead-letters without settling them.
type deaths struct {
	db    *DB
	queue string
	jobs  int // number of jobs so far
}

// report logs the dead jobs and notifies the observer. It must be called after their transaction has committed.
func (d *deaths) report(dead []row.Death) {
	if len(dead) > 0 {
		d.db.traffic.Add(d.db.engine.Now(), d.queue, traffic.Counts{Died: int64(len(dead))})
	}
	for _, j := range dead {
		if d.jobs++; d.jobs <= deathLines {
			d.db.opts.Logger.Warn("honker: job dead-lettered", "queue", d.queue, "job", j.ID,
				"attempt", j.Attempts, "worker", j.Worker, "error", j.Reason)
		}
		d.db.opts.Observer.Settled(observe.Settled{
			Queue: d.queue, ID: j.ID, Worker: j.Worker, Attempt: int(j.Attempts), Outcome: OutcomeDied, Err: errors.New(j.Reason),
		})
	}
}

// end logs the number of dead jobs that did not get a log line of their own.
func (d *deaths) end() {
	if more := d.jobs - deathLines; more > 0 {
		d.db.opts.Logger.Warn("honker: more jobs dead-lettered", "queue", d.queue, "jobs", more)
	}
}

// errExhausted is the cause of death of an event that has no attempts left and was never settled.
var errExhausted = errors.New(row.ReasonExhausted)

// reportDeath logs a dead-lettered event and notifies the observer.
func (g *group) reportDeath(offset int64, attempts int, cause error) {
	g.db.opts.Logger.Warn("honker: event dead-lettered", "topic", g.s.name, "group", g.name, "event", offset,
		"attempt", attempts, "error", worker.Reason(cause))
	g.db.opts.Observer.Settled(observe.Settled{
		Topic: g.s.name, Group: g.name, ID: offset, Attempt: attempts, Outcome: OutcomeDied, Err: cause,
	})
}
