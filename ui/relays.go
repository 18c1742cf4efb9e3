package ui

import (
	"context"
	"fmt"
	"html/template"
	"strconv"
	"strings"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
)

type relaysPageData struct {
	Relays []relayRow
	Total  int
}

// relayRow is a relay queue with a strip that shows its partitions.
type relayRow struct {
	admin.RelayInfo
	Grid template.HTML
}

// relaysPerPage is the maximum number of relay queues on the page.
const relaysPerPage = 200

func relaysPage(c *call) serve {
	return func() error {
		all, err := admin.Relays(c.ctx, c.db)
		if err != nil {
			return err
		}
		d := &relaysPageData{Total: len(all)}
		v := view{name: "relays", nav: "relays", title: "Relays", data: d}
		for _, r := range all[:min(len(all), relaysPerPage)] {
			d.Relays = append(d.Relays, relayRow{r, c.partitionGrid(r.Progress)})
			v.next = sooner(v.next, c.nextRetry(r.Progress))
		}
		return c.show(v)
	}
}

// partitionState is the state of a partition, as a word for operators and a CSS class.
type partitionState struct{ Text, Class string }

// stateOf returns the state of a partition. A partition that backs off after three attempts is a problem, as in
// admin.ProblemRelayStuck.
func (c *call) stateOf(p admin.RelayProgress) partitionState {
	const stuck = 3
	switch {
	case p.LastError != "" && p.Waiting > 0 && p.Attempts >= stuck:
		return partitionState{"stuck", "bad"}
	case p.RetryAt.After(c.now):
		return partitionState{"backs off", "warn"}
	case p.LeaseUntil.After(c.now):
		return partitionState{"held", "good"}
	case p.Waiting > 0:
		return partitionState{"waits", "busy"}
	}
	return partitionState{"idle", "idle"}
}

func (c *call) nextRetry(all []admin.RelayProgress) (next time.Time) {
	for _, p := range all {
		for _, t := range []time.Time{p.RetryAt, p.LeaseUntil} {
			if t.After(c.now) {
				next = sooner(next, t)
			}
		}
	}
	return next
}

// partitionGrid renders a square for each partition, at most 16 in a row.
func (c *call) partitionGrid(all []admin.RelayProgress) template.HTML {
	const side, step, columns = 10, 12, 16
	var cells strings.Builder
	count := map[string]int{}
	var order []string
	for i, p := range all {
		s := c.stateOf(p)
		if count[s.Text]++; count[s.Text] == 1 {
			order = append(order, s.Text)
		}
		fmt.Fprintf(&cells, `<rect class="%s" x="%d" y="%d" width="%d" height="%d" rx="2"><title>partition %d: %s, %s</title></rect>`,
			s.Class, i%columns*step, i/columns*step, side, side, p.Partition, s.Text, plural(p.Waiting, "message"))
	}
	words := make([]string, len(order))
	for i, text := range order {
		words[i] = strconv.Itoa(count[text]) + " " + text
	}
	width, height := min(len(all), columns)*step, (len(all)+columns-1)/columns*step
	return template.HTML(fmt.Sprintf(`<svg class="partitions" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-label="%s: %s">%s</svg>`,
		width, height, width, height, plural(len(all), "partition"), strings.Join(words, ", "), cells.String()))
}

type relayPageData struct {
	admin.RelayInfo
	Rows   []partitionRow
	State  string // of the dead letters shown
	States []string
	Dead   []relayLetter
	Open   []int64 // letters of Dead that can be requeued or discarded
	Next   int64   // the next page lists dead letters with higher IDs; 0 on the last page
	After  int64
}

type partitionRow struct {
	admin.RelayProgress
	State   partitionState
	Blocked bool
}

type relayLetter struct {
	admin.RelayDead
	Payload payload
	Open    bool
}

// relayDeadPerPage is the maximum number of dead letters on a relay queue's page.
const relayDeadPerPage = 50

func relayPage(c *call) serve {
	p := c.params
	family, queue := p.text("family", maxName), p.name("name")
	d := &relayPageData{State: p.choice("state", "pending", "replaying", "resolved", "discarded", "any"),
		States: []string{"pending", "replaying", "resolved", "discarded", "any"},
		After:  p.integer("after", 0, 1<<62, 0)}
	return func() error {
		all, err := admin.Relays(c.ctx, c.db)
		if err != nil {
			return err
		}
		found := false
		for _, r := range all {
			if r.Family == family && r.Queue == queue {
				d.RelayInfo, found = r, true
			}
		}
		if !found {
			return notFound("There is no such relay queue.")
		}
		for _, p := range d.Progress {
			blocked := p.RetryAt.After(c.now) || p.LeaseUntil.After(c.now)
			d.Rows = append(d.Rows, partitionRow{p, c.stateOf(p), blocked})
		}
		if err := c.relayLetters(d); err != nil {
			return err
		}
		return c.show(view{name: "relay", nav: "relays", title: "Relay " + cut(80, queue), data: d, next: c.nextRetry(d.Progress)})
	}
}

// relayLetters adds a page of dead letters.
func (c *call) relayLetters(d *relayPageData) error {
	f := admin.RelayDeadFilter{Family: d.Family, Queue: d.Queue, After: d.After}
	if d.State != "any" {
		f.State = d.State
	}
	for l, err := range admin.EachRelayDead(c.ctx, c.db, f) {
		if err != nil {
			return err
		}
		if len(d.Dead) == relayDeadPerPage {
			d.Next = d.Dead[relayDeadPerPage-1].ID
			return nil
		}
		open := l.SettledAt.IsZero() && !l.HoldUntil.After(c.now)
		d.Dead = append(d.Dead, relayLetter{l, c.payloadOf(d.Queue, l.Payload, shortText), open})
		if open {
			d.Open = append(d.Open, l.ID)
		}
	}
	return nil
}

// Name returns the queue's name with its family.
func (d *relayPageData) Name() string {
	if d.Family == "" {
		return d.Queue
	}
	return d.Family + "/" + d.Queue
}

// relayVerb serves a verb on dead letters of a relay queue.
func (c *call) relayVerb(title, effect string, change func(ctx context.Context, db *honker.DB, family, queue string, ids ...int64) (int, error)) serve {
	p := c.params
	family, queue, ids, back := p.text("family", maxName), p.name("relay"), p.ids("letter"), c.back()
	if len(ids) == 0 {
		p.fault("letter", "is missing")
	}
	c.access.N = int64(len(ids))
	run := func() error {
		n, err := change(c.ctx, c.db, family, queue, ids...)
		if err != nil {
			return err
		}
		if n == 0 {
			return c.redirect(back, "nothing", 0, 0)
		}
		c.changed(int64(n))
		return c.redirect(back, c.access.Verb, int64(n), 0)
	}
	if len(ids) == 1 || p.flag("confirm") {
		return run
	}
	return c.asks(title+" "+plural(len(ids), "dead letter"), effect, title, back, nil)
}

func requeueRelayAction(c *call) serve {
	return c.relayVerb("Requeue", "They are sent again, each as the last message of its partition.", admin.RequeueRelayDead)
}

func discardRelayAction(c *call) serve {
	return c.relayVerb("Discard", "They remain as discarded until the relay's application cleans them up.", admin.DiscardRelayDead)
}

func breakRelayAction(c *call) serve {
	p := c.params
	partition := admin.RelayPartition{Family: p.text("family", maxName), Queue: p.name("relay"), Partition: int(p.integer("partition", 0, 63, 0)), Epoch: p.integer("epoch", 0, 1<<62, 0)}
	return c.asks(fmt.Sprintf("Free partition %d of %s", partition.Partition, quoted(partition.Queue)),
		"Its lease and its backoff end, and the next process takes it at once. A process that is still handling a message continues, but its progress is not saved.", "Free",
		c.back(), func() (bool, error) { return admin.BreakRelayPartition(c.ctx, c.db, partition) })
}
