package ui

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
)

// changes returns a function that calls change and redirects to back, which shows the outcome.
func (c *call) changes(back string, change func() (bool, error)) serve {
	return func() error {
		did, err := change()
		if err != nil {
			return err
		}
		if !did {
			return c.redirect(back, "nothing", 0, 0)
		}
		c.changed(1)
		return c.redirect(back, c.access.Verb, 1, 0)
	}
}

// asks is like changes but first shows a confirmation page, which submits the same form again. Use it for verbs that
// cannot be undone.
func (c *call) asks(title, effect, button string, back string, change func() (bool, error)) serve {
	if c.params.flag("confirm") {
		return c.changes(back, change)
	}
	return func() error {
		d := &confirmData{Text: button, Effect: effect, Verb: c.access.Verb, Fields: url.Values{}, Danger: true, Back: back}
		for name, all := range c.params.values {
			if name != "db" && name != "back" {
				d.Fields[name] = all
			}
		}
		return c.render(http.StatusOK, view{name: "confirm", title: title, data: d})
	}
}

// queueName reads the name of a verb's queue and stores it in the call's Access.
func (c *call) queueName() string {
	c.access.Queue = c.params.name("queue")
	return c.access.Queue
}

func pauseAction(c *call) serve {
	name, back := c.queueName(), c.back()
	opts := &honker.PauseOptions{Key: c.params.text("key", maxText), Reason: c.params.text("reason", maxText), By: c.by()}
	if d := c.params.span("for"); d > 0 {
		opts.Until = c.now.Add(d)
	}
	return c.changes(back, func() (bool, error) {
		_, err := queueOf(c.db, name).Pause(c.ctx, opts)
		return err == nil, err // pausing a paused queue updates the reason
	})
}

func resumeAction(c *call) serve {
	name, key, back := c.queueName(), c.params.text("key", maxText), c.back()
	return c.changes(back, func() (bool, error) {
		if key != "" {
			return queueOf(c.db, name).ResumeKey(c.ctx, key)
		}
		return queueOf(c.db, name).Resume(c.ctx)
	})
}

func limitsAction(c *call) serve {
	p, name, back := c.params, c.queueName(), c.back()
	rate := func(prefix string) honker.Rate {
		return honker.Rate{N: int(p.integer(prefix+"_n", 0, 1_000_000, 0)), Per: p.span(prefix + "_per"), Burst: int(p.integer(prefix+"_burst", 0, 1_000_000, 0))}
	}
	l := honker.Limits{Running: int(p.integer("running", 0, 10_000, 0)), PerKey: int(p.integer("perkey", 0, 10_000, 0)),
		InOrder: p.flag("inorder"), Rate: rate("rate"), KeyRate: rate("keyrate")}
	for _, r := range []*honker.Rate{&l.Rate, &l.KeyRate} {
		if r.N == 0 {
			*r = honker.Rate{}
		}
	}
	return c.changes(back, func() (bool, error) {
		err := queueOf(c.db, name).SetLimits(c.ctx, l)
		return err == nil, err
	})
}

func retentionAction(c *call) serve {
	p, name, back := c.params, c.queueName(), c.back()
	keep := func(prefix string) honker.Retention {
		return honker.Retention{MaxCount: p.integer(prefix+"_count", 0, 1<<40, 0), MaxAge: p.span(prefix + "_age")}
	}
	r := honker.QueueRetention{Done: keep("done"), Dead: keep("dead")}
	return c.changes(back, func() (bool, error) {
		err := queueOf(c.db, name).SetRetention(c.ctx, r)
		return err == nil, err
	})
}

func enqueueAction(c *call) serve {
	p, name, back := c.params, c.queueName(), c.back()
	payload := json.RawMessage(p.text("payload", maxForm))
	if !json.Valid(payload) {
		p.fault("payload", "must be JSON")
	}
	opts := []honker.EnqueueOption{honker.Delay(p.span("delay")), honker.Priority(int(p.integer("priority", -maxNumber, maxNumber, 0)))}
	return func() error {
		if !c.h.opts.Enqueue {
			return refused(errNoEnqueue)
		}
		id, err := admin.Enqueue(c.ctx, c.db, name, payload, opts...)
		if err != nil {
			return err
		}
		c.changed(1)
		return c.redirect(back, "enqueue", id, 0)
	}
}

func seekAction(c *call) serve {
	topic, consumer, back := c.params.name("topic"), c.params.name("consumer"), c.back()
	offset := c.params.integer("offset", 0, 1<<62, 0)
	to := map[string]honker.From{"beginning": honker.Beginning, "end": honker.End, "offset": honker.Offset(offset)}[c.params.choice("to", "offset", "beginning", "end")]
	return c.asks("Move the consumer "+quoted(consumer), "It continues after the new position, and so reads events again or skips them. Stop the consumer before you move it.", "Move",
		back, func() (bool, error) {
			err := streamOf(c.db, topic).Seek(c.ctx, consumer, to)
			return err == nil, err
		})
}

func deleteConsumerAction(c *call) serve {
	topic, consumer, back := c.params.name("topic"), c.params.name("consumer"), c.back()
	return c.asks("Delete the consumer "+quoted(consumer), "Its position is deleted, and it no longer keeps events from being deleted.", "Delete", back,
		func() (bool, error) { return streamOf(c.db, topic).DeleteConsumer(c.ctx, consumer) })
}

func deleteGroupAction(c *call) serve {
	topic, group, back := c.params.name("topic"), c.params.name("group"), c.back()
	return c.asks("Delete the group "+quoted(group), "Its members lose their claims, and its dead events are deleted.", "Delete", back,
		func() (bool, error) { return streamOf(c.db, topic).Group(group, nil).Delete(c.ctx) })
}

// deadEvent serves a verb on one of a group's dead events.
func (c *call) deadEvent(change func(g *honker.Group[rawJSON], offset int64) (bool, error)) serve {
	topic, group, offset, back := c.params.name("topic"), c.params.name("group"), c.params.id("offset"), c.back()
	return c.changes(back, func() (bool, error) { return change(streamOf(c.db, topic).Group(group, nil), offset) })
}

func redeliverAction(c *call) serve {
	return c.deadEvent(func(g *honker.Group[rawJSON], offset int64) (bool, error) { return g.Redeliver(c.ctx, offset) })
}

func discardEventAction(c *call) serve {
	return c.deadEvent(func(g *honker.Group[rawJSON], offset int64) (bool, error) { return g.Discard(c.ctx, offset) })
}

// schedule reads the name of a schedule and stores its queue in the call's Access.
func (c *call) schedule() string {
	name := c.params.name("schedule")
	all, err := c.db.Scheduler().List(c.ctx)
	if err != nil {
		return name // the verb will report the error
	}
	for _, s := range all {
		if s.Name == name {
			c.access.Queue = s.Queue
		}
	}
	return name
}

func triggerAction(c *call) serve {
	name, back := c.schedule(), c.back()
	return func() error {
		id, err := c.db.Scheduler().Trigger(c.ctx, name)
		if err != nil {
			return err
		}
		c.changed(1)
		return c.redirect(back, "trigger", id, 0)
	}
}

func pauseScheduleAction(c *call) serve {
	name, back := c.schedule(), c.back()
	return c.changes(back, func() (bool, error) { return c.db.Scheduler().Pause(c.ctx, name) })
}

func resumeScheduleAction(c *call) serve {
	name, back := c.schedule(), c.back()
	return c.changes(back, func() (bool, error) { return c.db.Scheduler().Resume(c.ctx, name) })
}

func breakLockAction(c *call) serve {
	name, owner, back := c.params.name("lock"), c.params.name("owner"), c.back()
	return c.asks("Break the lock "+quoted(name), "Its holder "+quoted(owner)+" continues until it notices at its next renewal. Break the lock only if the holder is gone or hangs.", "Break",
		back, func() (bool, error) { return admin.BreakLock(c.ctx, c.db, name, owner) })
}

// maintainAction runs a round of maintenance for at most actionTime. If it runs out of time, the work done so far is
// kept.
func maintainAction(c *call) serve {
	return c.changes(c.back(), func() (bool, error) {
		ctx, cancel := context.WithTimeout(c.ctx, actionTime)
		defer cancel()
		extend(c.w, actionTime+streamWrite)
		err := c.db.Maintain(ctx, &honker.MaintainOptions{Once: true})
		if err != nil && timedOut(ctx, err) {
			return false, &problem{http.StatusServiceUnavailable, "Maintenance is incomplete", "Maintenance did not finish within " + admin.FormatSpan(actionTime) + ". Its changes so far are kept. Run it again to continue."}
		}
		return err == nil, err
	})
}

func checkAction(c *call) serve {
	back := c.back()
	return func() error {
		c.file.checker.start(c.h, c.db)
		return c.redirect(back, "check", 0, 0)
	}
}
