package dispatch

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// command is an event in a control topic.
type command struct {
	Cmd string `json:"cmd"`
	ID  int64  `json:"id,omitempty"` // job ID of cmdStopJob; offset of the ping for cmdPong

	offset int64 // 0 if sent within this process
}

// The commands. The last two are sent only within a process.
const (
	cmdStop    = row.DispatchStop
	cmdPause   = row.DispatchPause
	cmdResume  = row.DispatchResume
	cmdPing    = "ping"
	cmdPong    = "pong"
	cmdStopJob = "stop job"
	cmdLost    = "lost"  // the presence row was deleted
	cmdLanes   = "lanes" // the queues to claim from have changed
)

// Stop stops t's live actors. They claim no more jobs and finish their tasks, and their Run returns
// nil. Stop returns the number of actors that will receive the command, without waiting for them to
// stop. Actors that start later are not affected.
func (d *Dispatcher) Stop(ctx context.Context, t Target) (int, error) {
	n, _, err := d.command(ctx, "stop", t, command{Cmd: cmdStop})
	return n, err
}

// Pause keeps t's live actors from claiming jobs until Resume is called. Running tasks continue.
// Like [Dispatcher.Stop], it returns the number of actors that will receive the command.
func (d *Dispatcher) Pause(ctx context.Context, t Target) (int, error) {
	n, _, err := d.command(ctx, "pause", t, command{Cmd: cmdPause})
	return n, err
}

// Resume ends a Pause of t's live actors. It returns the number of actors that will receive the
// command.
func (d *Dispatcher) Resume(ctx context.Context, t Target) (int, error) {
	n, _, err := d.command(ctx, "resume", t, command{Cmd: cmdResume})
	return n, err
}

// command publishes c to t's live actors. It returns how many there are and the event's offset. If
// no actor is alive, nothing is published.
func (d *Dispatcher) command(ctx context.Context, verb string, t Target, c command) (told int, offset int64, err error) {
	t.Prio = 0
	if err := d.checkTarget(t); err != nil {
		return 0, 0, fail(verb, t.String(), err)
	}
	if err := errors.Join(d.engine.Writable(), d.engine.RefuseInTx(ctx, "")); err != nil {
		return 0, 0, fail(verb, t.String(), err)
	}
	var living []Presence
	err = d.read(ctx, func(ctx context.Context, q engine.Querier) (err error) {
		living, err = d.presences(ctx, q, t, d.engine.Now())
		return err
	})
	if err != nil || len(living) == 0 {
		return 0, 0, fail(verb, t.String(), err)
	}
	topic := d.keys.Control(t)
	if offset, err = d.topic(topic).Publish(ctx, c); err != nil {
		return 0, 0, fail(verb, t.String(), err)
	}
	d.retain(ctx, topic)
	return len(living), offset, nil
}

func (d *Dispatcher) topic(name string) *honker.Stream[command] {
	return honker.NewStream[command](d.db, name, nil)
}

// retain sets the retention of a control topic, once per topic. An error is only logged, because the
// command works without it.
func (d *Dispatcher) retain(ctx context.Context, topic string) {
	d.mu.Lock()
	known := d.retained[topic]
	d.retained[topic] = true
	d.mu.Unlock()
	if known {
		return
	}
	if err := d.topic(topic).SetRetention(ctx, honker.Retention{MaxAge: row.DispatchControlAge}); err != nil {
		d.engine.Logger.Warn("honker: dispatch: the retention of a control topic could not be set", "topic", topic, "error", err)
	}
}

// Pong is an actor's answer to Ping.
type Pong struct {
	Identity
	Took time.Duration // time from committing the ping to reading its answer
}

// Ping sends a ping to t's live actors. It returns their answers once all of them have answered or
// Options.TTL has passed. If ctx ends first, Ping returns the answers received so far and ctx's
// error.
func (d *Dispatcher) Ping(ctx context.Context, t Target) (pongs []Pong, err error) {
	told, offset, err := d.command(ctx, "ping", t, command{Cmd: cmdPing})
	if err != nil || told == 0 {
		return nil, err
	}
	asked := time.Now()
	waiting, cancel := context.WithTimeout(ctx, d.opts.TTL)
	defer cancel()
	for e, err := range d.topic(d.keys.prefix()+"q:ctl:*").Tail(waiting, honker.Offset(offset), honker.KeyIs(cmdPong)) {
		if e == nil {
			return pongs, fail("ping", t.String(), err)
		}
		key, parseErr := d.keys.Parse(e.Topic)
		if err != nil || parseErr != nil || e.Data.ID != offset {
			continue
		}
		a := key.Target
		pongs = append(pongs, Pong{Identity: Identity{Type: a.Type, Group: a.Group, Instance: a.Instance}, Took: time.Since(asked)})
		if len(pongs) == told {
			return pongs, nil
		}
	}
	if ctx.Err() != nil {
		return pongs, fail("ping", t.String(), engine.Cause(ctx))
	}
	return pongs, nil
}

// StopJob stops the job with the ID returned by Send. A waiting job will not run. If the job is
// running, its handler's ctx is canceled with cause [honker.ErrCancelled], and the job is not
// retried. StopJob reports whether this call stopped the job; it returns false if the job has
// already ended or is unknown. Workers in other bindings aren't notified: they find out that they
// have lost the claim when they settle the job.
func (d *Dispatcher) StopJob(ctx context.Context, id int64) (stopped bool, err error) {
	if err := errors.Join(d.err, d.engine.RefuseInTx(ctx, "")); err != nil {
		return false, failID("stop job", id, err)
	}
	holder := ""
	err = d.engine.TxAgain(ctx, func(ctx context.Context, tx *sql.Tx) (err error) {
		stopped, holder, err = d.stopJob(ctx, tx, id)
		return err
	})
	if err != nil {
		return false, failID("stop job", id, err)
	}
	if holder != "" {
		d.retain(ctx, holder)
	}
	return stopped, nil
}

// stopJob records the stop, cancels the job and its copies, and sends a command to the actor that
// runs the job. holder is the control topic of that actor, or "" if no actor runs it.
func (d *Dispatcher) stopJob(ctx context.Context, tx *sql.Tx, id int64) (stopped bool, holder string, err error) {
	live, err := d.store.Stop(ctx, tx, id, d.engine.Now())
	if err != nil || len(live) == 0 {
		return false, "", err
	}
	for _, c := range live {
		if c.Worker != "" {
			holder = d.controlOf(c.Worker)
		}
		if _, err := honker.NewQueue[any](d.db, c.Queue, nil).CancelTx(ctx, tx, c.ID); err != nil {
			return false, "", fmt.Errorf("queue %q: %w", c.Queue, err)
		}
	}
	if holder != "" {
		_, err = d.topic(holder).PublishTx(ctx, tx, command{Cmd: cmdStopJob, ID: id})
	}
	return true, holder, err
}

// controlOf returns the control topic of the actor with the given worker ID, or "" if worker is not
// an actor.
func (d *Dispatcher) controlOf(worker string) string {
	key, err := d.keys.Parse(presenceOf(worker))
	if err != nil || key.Kind != KindPresence {
		return ""
	}
	return d.keys.Control(key.Target)
}
