package ui

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"

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
		return c.render(http.StatusOK, view{name: "confirm", nav: navOf(back), title: title, data: d})
	}
}

// navOf returns the menu's entry for the page that a form was sent from.
func navOf(back string) string {
	switch name, _, _ := strings.Cut(back, "?"); name {
	case "queue", "job", "stream", "relay":
		return name + "s"
	case "run":
		return "flows"
	case "./":
		return ""
	default:
		return name
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
	if opts.Key == "" {
		back = with(back, "in", name)
	}
	return c.changes(back, func() (bool, error) {
		_, err := queueOf(c.db, name).Pause(c.ctx, opts)
		return err == nil, err // pausing a paused queue updates the reason
	})
}

func resumeAction(c *call) serve {
	name, key, back := c.queueName(), c.params.text("key", maxText), c.back()
	if key != "" {
		return c.changes(back, func() (bool, error) { return queueOf(c.db, name).ResumeKey(c.ctx, key) })
	}
	return c.changes(with(back, "in", name), func() (bool, error) { return queueOf(c.db, name).Resume(c.ctx) })
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

// retentionAction sets the retention of a queue or of a topic.
func retentionAction(c *call) serve {
	if c.params.one("topic") != "" {
		return c.topicRetention()
	}
	name, back := c.queueName(), c.back()
	r := honker.QueueRetention{Done: c.keep("done"), Dead: c.keep("dead")}
	return c.changes(back, func() (bool, error) {
		err := queueOf(c.db, name).SetRetention(c.ctx, r)
		return err == nil, err
	})
}

// keep reads the retention in the form fields with a prefix.
func (c *call) keep(prefix string) honker.Retention {
	return honker.Retention{MaxCount: c.params.integer(prefix+"_count", 0, 1<<40, 0), MaxAge: c.params.span(prefix + "_age")}
}

// topicRetention asks with the number of events that the retention will delete, and sets it.
func (c *call) topicRetention() serve {
	topic, r, back := c.params.name("topic"), c.keep("keep"), c.back()
	set := func() (bool, error) {
		err := streamOf(c.db, topic).SetRetention(c.ctx, r)
		return err == nil, err
	}
	if c.params.flag("confirm") {
		return c.changes(back, set)
	}
	return func() error {
		p, err := admin.PreviewRetention(c.ctx, c.db, topic, r)
		if err != nil {
			return err
		}
		effect := fmt.Sprintf("The next maintenance deletes %s of %s.", num(p.Deletes), plural(p.Events, "event"))
		if p.Kept > 0 {
			effect += fmt.Sprintf(" %s more are kept until %s has read them.", num(p.Kept), p.PinnedBy)
		}
		return c.asks("Set the retention of "+quoted(topic), effect, "Set", back, set)()
	}
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
	if c.params.flag("all") {
		return c.redeliverAll()
	}
	return c.deadEvent(func(g *honker.Group[rawJSON], offset int64) (bool, error) { return g.Redeliver(c.ctx, offset) })
}

// redeliverAll asks, and then redelivers a group's dead events for at most actionTime. The page that follows shows how many
// are left.
func (c *call) redeliverAll() serve {
	topic, group, back := c.params.name("topic"), c.params.name("group"), c.back()
	return func() error {
		g := streamOf(c.db, topic).Group(group, nil)
		info, err := g.Info(c.ctx)
		if err != nil {
			return err
		}
		title := "Redeliver " + plural(info.Dead, "dead event") + " of " + quoted(group)
		if !c.params.flag("confirm") {
			return c.asks(title, "They are delivered again in their order, each with all its attempts.", "Redeliver all", back, nil)()
		}
		ctx, cancel := context.WithTimeout(c.ctx, actionTime)
		defer cancel()
		extend(c.w, actionTime+streamWrite)
		n, err := redeliverDead(ctx, g)
		if n > 0 {
			c.changed(n)
		}
		switch {
		case err != nil && !timedOut(ctx, err):
			return err
		case n == 0:
			return c.redirect(back, "nothing", 0, 0)
		}
		return c.redirect(back, "redeliver", n, 0)
	}
}

// redeliverDead redelivers the events of g that are dead now. An event may die again in the meantime.
func redeliverDead(ctx context.Context, g *honker.Group[rawJSON]) (n int64, err error) {
	var dead []int64
	for e, err := range g.Dead(ctx) {
		if e == nil {
			return 0, err
		}
		dead = append(dead, e.Offset)
	}
	for _, offset := range dead {
		did, err := g.Redeliver(ctx, offset)
		if err != nil {
			return n, err
		}
		if did {
			n++
		}
	}
	return n, nil
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
		c.file.check.start(c.h, c.db.Check)
		return c.redirect(back, "check", 0, 0)
	}
}

// vacuumAction asks, and then rebuilds the file in the background, because that can take longer than a request may.
func vacuumAction(c *call) serve {
	return c.asks("Vacuum the file", "The file is rebuilt without its free pages. Nothing can be written until that is done. "+
		"It needs as much disk as the rest of the file. If this process ends meanwhile, the file stays as it is.", "Vacuum", c.back(), func() (bool, error) {
		c.file.vacuum.start(c.h, func(ctx context.Context) error { return admin.Vacuum(c.inName(ctx), c.db) })
		return true, nil
	})
}
