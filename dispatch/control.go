package dispatch

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
)

// command is an event of a control topic.
type command struct {
	Cmd string `json:"cmd"`
	ID  int64  `json:"id,omitempty"` // the job of a stop job; of a pong, the ping's offset

	offset int64 // 0: from this process
}

// The commands. The last two never leave their process.
const (
	cmdStop    = "stop"
	cmdPause   = "pause"
	cmdResume  = "resume"
	cmdPing    = "ping"
	cmdPong    = "pong"
	cmdStopJob = "stop job"
	cmdLost    = "lost"  // the presence is gone
	cmdLanes   = "lanes" // there are others
)

// controlAge is how long a command is kept.
const controlAge = time.Hour

// Stop lets the actors of t end: they take nothing more, finish what they have, and Run returns nil.
// It returns how many were told, as soon as that is committed; an actor hears it a moment later. One
// that starts later is not concerned.
func (d *Dispatcher) Stop(ctx context.Context, t Target) (int, error) {
	n, _, err := d.command(ctx, "stop", t, command{Cmd: cmdStop})
	return n, err
}

// Pause lets the actors of t take nothing more, until Resume; what they have goes on. It returns how
// many were told, see [Dispatcher.Stop].
func (d *Dispatcher) Pause(ctx context.Context, t Target) (int, error) {
	n, _, err := d.command(ctx, "pause", t, command{Cmd: cmdPause})
	return n, err
}

// Resume is the end of Pause. It returns how many were told.
func (d *Dispatcher) Resume(ctx context.Context, t Target) (int, error) {
	n, _, err := d.command(ctx, "resume", t, command{Cmd: cmdResume})
	return n, err
}

// command publishes c for the actors of t that live, if there are some.
func (d *Dispatcher) command(ctx context.Context, verb string, t Target, c command) (told int, offset int64, err error) {
	t.Prio = 0
	if err := d.checkTarget(t); err != nil {
		return 0, 0, fail(verb, t.String(), err)
	}
	if err := d.engine.RefuseInTx(ctx, ""); err != nil {
		return 0, 0, fail(verb, t.String(), err)
	}
	topic := d.keys.Control(t)
	err = d.db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		told = 0
		if there, err := d.store.Exists(ctx, tx); err != nil || !there {
			return err
		}
		living, err := d.presences(ctx, tx, t, time.Now())
		if err != nil || len(living) == 0 {
			return err
		}
		told = len(living)
		offset, err = d.topic(topic).PublishTx(ctx, tx, c)
		return err
	})
	if err != nil {
		return 0, 0, fail(verb, t.String(), err)
	}
	if told > 0 {
		d.retain(ctx, topic)
	}
	return told, offset, nil
}

func (d *Dispatcher) topic(name string) *honker.Stream[command] {
	return honker.NewStream[command](d.db, name, nil)
}

// retain bounds what is kept of a control topic. Without it the command is as good, so an error is
// only logged.
func (d *Dispatcher) retain(ctx context.Context, topic string) {
	d.mu.Lock()
	known := d.retained[topic]
	d.retained[topic] = true
	d.mu.Unlock()
	if known {
		return
	}
	if err := d.topic(topic).SetRetention(ctx, honker.Retention{MaxAge: controlAge}); err != nil {
		d.engine.Logger.Warn("honker: dispatch: a control topic has no retention", "topic", topic, "error", err)
	}
}

// Pong is the answer of an actor to Ping.
type Pong struct {
	Identity
	Took time.Duration // from the commit of the question to the answer, as it was read here
}

// Ping asks the actors of t that live, and returns their answers once all have answered or
// Options.TTL has passed, after which one that has not is gone. With the end of ctx it returns the
// answers so far and the error.
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

// StopJob ends a job that Send has returned: one that waits never runs; of one that runs the
// handler's ctx ends, with [honker.ErrCancelled] as its cause, and it is not tried again. It reports
// whether the job was stopped by this call: false for one that is over or not known. The handler of
// another binding's worker is not told, and finds its claim gone when it ends.
func (d *Dispatcher) StopJob(ctx context.Context, id int64) (stopped bool, err error) {
	if err := errors.Join(d.err, d.engine.RefuseInTx(ctx, "")); err != nil {
		return false, failID("stop job", id, err)
	}
	holder := ""
	err = d.db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) (err error) {
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

// stopJob notes the stop, deletes what stands for the job, and tells the actor that runs it, of which
// it returns the topic.
func (d *Dispatcher) stopJob(ctx context.Context, tx *sql.Tx, id int64) (stopped bool, holder string, err error) {
	if there, err := d.store.Exists(ctx, tx); err != nil || !there {
		return false, "", err
	}
	live, err := d.store.Copies(ctx, tx, id)
	if err != nil || len(live) == 0 {
		return false, "", err
	}
	now := time.Now()
	held := int64(0)
	for _, c := range live {
		if c.Claimed && c.Until >= now.Unix() {
			held = engine.Instant(c.Until).UnixMilli()
			holder = d.controlOf(c.Worker)
		}
	}
	if err := d.store.Stop(ctx, tx, id, held, now.UnixMilli()); err != nil {
		return false, "", err
	}
	for _, c := range live {
		if _, err := honker.NewQueue[any](d.db, c.Queue, nil).CancelTx(ctx, tx, c.ID); err != nil {
			return false, "", fmt.Errorf("queue %q: %w", c.Queue, err)
		}
	}
	if holder != "" {
		_, err = d.topic(holder).PublishTx(ctx, tx, command{Cmd: cmdStopJob, ID: id})
	}
	return true, holder, err
}

// controlOf is the control topic of the actor that claims as worker; "" for what is no actor.
func (d *Dispatcher) controlOf(worker string) string {
	key, err := d.keys.Parse(presenceOf(worker))
	if err != nil || key.Kind != KindPresence {
		return ""
	}
	return d.keys.Control(key.Target)
}
