package admin

import (
	"context"
	"fmt"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/row"
)

const (
	// mostProblems limits the problems of each kind.
	mostProblems = 100
	// problemEvents limits the index entries that are read to count the events of problems, apart from a thousand for
	// each topic.
	problemEvents = 100_000
)

// readerName identifies a consumer or group.
type readerName struct{ kind, topic, name string }

// readers reports consumers and groups that keep events from being deleted, that read nothing, and that fall behind. It
// reports each only once.
func (s *search) readers(ctx context.Context, behind []row.Behind) error {
	b, err := newBacklogs(ctx, s.engine, s.q)
	if err != nil {
		return err
	}
	reported := make(map[readerName]bool)
	if err := s.pinned(ctx, b, reported); err != nil {
		return err
	}
	s.behind(behind, reported)
	return s.slow(ctx, b, reported)
}

// behind reports consumers and groups that aren't reading their events.
func (s *search) behind(all []row.Behind, reported map[readerName]bool) {
	for _, b := range all {
		name := readerName{b.Kind, b.Topic, b.Name}
		if reported[name] {
			continue
		}
		reported[name] = true
		p := Problem{Code: ProblemBehind, Topic: b.Topic, Name: b.Name, Since: b.Oldest, N: honker.Count(b.Unseen),
			Actions: releases(row.Pin{Kind: b.Kind, Topic: b.Topic, Name: b.Name})}
		p.Text = fmt.Sprintf("%s: %s %s has not read %s", b.Topic, b.Kind, b.Name, counted(p.N, "event"))
		switch {
		case b.Kind == "group":
			p.Text += ", and has no live member"
		case !b.Acked.IsZero():
			p.Since = later(p.Since, b.Acked)
			p.Text += ", and has not saved its offset"
		}
		s.add(p)
	}
}

// pinned reports topics whose retention is exceeded because a consumer or group has yet to read the events.
func (s *search) pinned(ctx context.Context, b *backlogs, reported map[readerName]bool) error {
	var all []*pinnedTopic
	for i := range b.topics {
		if len(all) == mostProblems {
			break
		}
		t := &b.topics[i]
		if t.Head == 0 || !t.Bounded() {
			continue
		}
		p, err := b.pinOf(ctx, i, t.Retention)
		if err != nil {
			return err
		}
		if p.found {
			all = append(all, p)
		}
	}
	if err := b.count(ctx, problemEvents); err != nil {
		return err
	}
	for _, p := range all {
		kept, first, err := b.keptFor(ctx, p)
		if err != nil {
			return err
		}
		if kept == (honker.Count{}) || s.now.Sub(first) <= waitsLong {
			continue
		}
		reported[readerName{p.pin.Kind, p.pin.Topic, p.pin.Name}] = true
		s.add(Problem{Code: ProblemPinned, Topic: p.retention.Topic, Name: p.pin.Name, N: kept, Since: first,
			Text:    fmt.Sprintf("%s: %s %s keeps %s beyond the retention", p.retention.Topic, p.pin.Kind, p.pin.Name, counted(kept, "event")),
			Actions: releases(p.pin)})
	}
	return nil
}

// releases returns the actions that let a reader's events be deleted.
func releases(pin row.Pin) []Action {
	if pin.Kind == "group" {
		return []Action{{Verb: ActionDeleteGroup, Topic: pin.Topic, Name: pin.Name}}
	}
	return []Action{{Verb: ActionSeekConsumer, Topic: pin.Topic, Name: pin.Name}, {Verb: ActionDeleteConsumer, Topic: pin.Topic, Name: pin.Name}}
}

// slow reports consumers that are more than behindFor behind, and were no further behind ten minutes ago. The file has the
// past position only of consumers that save their offsets with this library. Groups, and consumers with a pattern or a
// filter, are not examined.
func (s *search) slow(ctx context.Context, b *backlogs, reported map[readerName]bool) error {
	rows, err := s.engine.Stores.Consumers.List(ctx, s.q, "")
	if err != nil {
		return err
	}
	var plain []row.Consumer
	var places []row.OffsetIn
	for _, c := range rows {
		if c.Unreadable == nil && !c.Selection().Sparse() && !reported[readerName{"consumer", c.Topic, c.Name}] {
			plain = append(plain, c)
			places = append(places, row.OffsetIn{Topic: c.Topic, Offset: c.Offset})
		}
	}
	if len(plain) == 0 {
		return nil
	}
	first, err := s.engine.Stores.Streams.TimesAfter(ctx, s.q, places)
	if err != nil {
		return err
	}
	var late []row.Consumer
	for i, c := range plain {
		if len(late) < mostProblems && fallsBehind(c, first[i], s.now) {
			late = append(late, c)
		}
	}
	states, err := b.describe(ctx, late, problemEvents)
	for _, c := range states {
		s.add(slowProblem(c, s.now))
	}
	return err
}

// fallsBehind reports whether a consumer whose first unread event was published at first has a long lag that does not
// shrink.
func fallsBehind(c row.Consumer, first, now time.Time) bool {
	lag := now.Sub(first)
	if first.IsZero() || lag <= behindFor {
		return false
	}
	if !c.LastAck.IsZero() && now.Sub(c.LastAck) >= row.MarkEvery {
		return true
	}
	m, known := c.Baseline(now)
	return known && m.Behind <= lag
}

func slowProblem(c ConsumerState, now time.Time) Problem {
	p := Problem{Code: ProblemSlow, Topic: c.Topic, Name: c.Name, Since: c.Behind, N: c.Lag,
		Text: fmt.Sprintf("%s: consumer %s is %s behind and does not catch up, with %s to read", c.Topic, c.Name,
			FormatAge(now.Sub(c.Behind)), counted(c.Lag, "event")),
		Actions: []Action{{Verb: ActionSeekConsumer, Topic: c.Topic, Name: c.Name}}}
	if !c.ReadSince.IsZero() {
		p.Text += fmt.Sprintf(" (it reads %.3g a second, and %.3g are published)", c.Read, c.Published)
	}
	return p
}
