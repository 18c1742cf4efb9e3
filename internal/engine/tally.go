package engine

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/honker-go/honker/internal/row"
)

// EventsAbove selects the events of a topic with offsets above an offset.
type EventsAbove struct {
	Topic  *row.TopicState
	Offset int64
}

// Bounds is a number that is at least Least and at most Most.
type Bounds struct{ Least, Most int64 }

// Plus returns the bounds of a sum.
func (b Bounds) Plus(c Bounds) Bounds { return Bounds{b.Least + c.Least, b.Most + c.Most} }

// Exact reports whether the number is known.
func (b Bounds) Exact() bool { return b.Least == b.Most }

const (
	// leastCounted is the number of index entries that a call of CountAbove may read for each topic, in addition to its
	// limit.
	leastCounted = 1_000
	// tallyAge is the age at which counts are taken anew, in case another program has deleted events.
	tallyAge = time.Hour
	// markAge is how long an offset remains marked after it was last asked for.
	markAge = time.Minute
	// mostTallies bounds the number of topics whose counts are cached.
	mostTallies = 10_000
)

// tallies holds a tally for each topic.
type tallies struct {
	mu sync.Mutex
	of map[string]*tally
}

// tally remembers the numbers of a topic's events between marks. A later call has to count only the events that were
// published or passed by a reader since. Nothing between two marks above the last compacted offset is ever deleted by
// honker, because a compaction deletes events from the beginning of the topic.
type tally struct {
	began time.Time
	marks []mark // by offset; the last is the head of the topic
}

// mark says that the topic has sum events up to offset, not counting an unknown number that is the same for all marks of
// a tally. The sum may be negative.
type mark struct {
	offset, sum int64
	used        time.Time
}

// CountAbove counts events, for all selections in a single pass over the topics' indexes. It reads up to about most
// index entries, and leastCounted for each topic. If that is too few, it returns bounds, and the next call continues
// where it stopped. Numbers of earlier calls are reused, except in a transaction, which may have changed them.
func (e *Engine) CountAbove(ctx context.Context, q Querier, all []EventsAbove, most int64) ([]Bounds, error) {
	scope, err := e.liveScope(ctx)
	if err != nil {
		return nil, err
	}
	known := &e.tallies
	if scope != nil {
		known = &tallies{}
	}
	known.mu.Lock() // its holder has a connection, so it does not wait for this call's
	defer known.mu.Unlock()
	topics := make(map[string][]int)
	var names []string
	for i, a := range all {
		if topics[a.Topic.Topic] == nil {
			names = append(names, a.Topic.Topic)
		}
		topics[a.Topic.Topic] = append(topics[a.Topic.Topic], i)
	}
	found := make([]Bounds, len(all))
	count := func(name string, left int64) (read int64, exact bool, err error) {
		wanted := topics[name]
		// The events next to the head come first, because they are the cheapest to count.
		slices.SortFunc(wanted, func(i, j int) int { return cmp.Compare(all[j].Offset, all[i].Offset) })
		c := &counting{ctx: ctx, q: q, streams: e.Stores.Streams, state: all[wanted[0]].Topic, tally: known.tally(name), left: left}
		exact, err = c.all(all, wanted, found)
		return left - c.left, exact, err
	}
	var rest []string
	for _, name := range names {
		_, exact, err := count(name, leastCounted)
		if err != nil {
			return nil, err
		}
		if !exact {
			rest = append(rest, name)
		}
	}
	for _, name := range rest {
		read, _, err := count(name, most)
		if err != nil {
			return nil, err
		}
		most -= read
	}
	return found, nil
}

// tally returns the tally of a topic.
func (t *tallies) tally(topic string) *tally {
	if t.of == nil || len(t.of) >= mostTallies {
		t.of = make(map[string]*tally)
	}
	known := t.of[topic]
	if known == nil || time.Since(known.began) > tallyAge {
		known = &tally{began: time.Now()}
		t.of[topic] = known
	}
	return known
}

// counting is a running count of a topic.
type counting struct {
	ctx     context.Context
	q       Querier
	streams StreamStore
	state   *row.TopicState
	*tally
	left int64 // index entries that may still be read
}

// all counts the selections at the positions wanted, which are sorted by falling offsets.
func (c *counting) all(of []EventsAbove, wanted []int, found []Bounds) (exact bool, err error) {
	exact = true
	if c.state.Head == 0 {
		return true, nil // without events every number is 0
	}
	if err := c.reachHead(); err != nil {
		return false, err
	}
	head, err := c.sumAt(c.state.Head)
	if err != nil {
		return false, err
	}
	for _, i := range wanted {
		above := min(max(of[i].Offset, c.state.First-1), c.state.Head)
		sum, err := c.sumAt(above)
		if err != nil {
			return false, err
		}
		found[i] = Bounds{max(0, head.Least-sum.Most), min(max(0, head.Most-sum.Least), c.state.Head-above)}
		exact = exact && found[i].Exact()
	}
	c.prune(len(wanted))
	return exact, nil
}

// reachHead drops the marks below events that may have been deleted, and adds a mark at the head.
func (c *counting) reachHead() error {
	floor := max(c.state.First-1, c.state.Gone)
	c.marks = slices.DeleteFunc(c.marks, func(m mark) bool { return m.offset < floor })
	if len(c.marks) > 0 && c.marks[len(c.marks)-1].offset > c.state.Head {
		c.marks = nil // the snapshot of the last call was newer, or a backup was restored since
	}
	if len(c.marks) == 0 {
		c.add(c.state.Head, 0)
		return nil
	}
	top := c.marks[len(c.marks)-1]
	if c.state.Head == top.offset {
		return nil
	}
	n, err := c.count(top.offset, c.state.Head)
	if err != nil {
		return err
	}
	if n.Reached > top.offset {
		c.marks = nil // too many events are new to connect both ends
		c.add(c.state.Head, 0)
		c.add(n.Reached, -n.N)
		return nil
	}
	c.add(c.state.Head, top.sum+n.N)
	return nil
}

// sumAt returns the sum of a mark at offset, which is not above the last mark. It counts the events between offset and the
// nearest mark.
func (c *counting) sumAt(offset int64) (Bounds, error) {
	i, marked := slices.BinarySearchFunc(c.marks, offset, func(m mark, o int64) int { return cmp.Compare(m.offset, o) })
	if marked {
		c.marks[i].used = time.Now()
		return Bounds{c.marks[i].sum, c.marks[i].sum}, nil
	}
	above := c.marks[i]
	var below *mark
	if i > 0 {
		below = &c.marks[i-1]
		if offset-below.offset < above.offset-offset {
			return c.sumFrom(*below, above, offset)
		}
	}
	n, err := c.count(offset, above.offset)
	if err != nil {
		return Bounds{}, err
	}
	sum := above.sum - n.N
	switch {
	case n.Reached == offset:
		c.add(offset, sum)
		return Bounds{sum, sum}, nil
	case below != nil:
		return Bounds{below.sum, sum}, nil
	}
	c.add(n.Reached, sum) // the next call continues here
	return Bounds{sum - (n.Reached - offset), sum}, nil
}

// sumFrom is sumAt for an offset whose nearest mark is below it.
func (c *counting) sumFrom(below, above mark, offset int64) (Bounds, error) {
	n, err := c.count(below.offset, offset)
	if err != nil {
		return Bounds{}, err
	}
	sum := below.sum + n.N
	if n.Reached > below.offset {
		return Bounds{sum, above.sum}, nil
	}
	c.add(offset, sum)
	return Bounds{sum, sum}, nil
}

func (c *counting) count(after, through int64) (row.CountedDown, error) {
	n, err := c.streams.CountDown(c.ctx, c.q, c.state.Topic, after, through, max(0, c.left))
	c.left -= n.N
	return n, err
}

// add adds a mark, which must not exist.
func (c *counting) add(offset, sum int64) {
	i, _ := slices.BinarySearchFunc(c.marks, offset, func(m mark, o int64) int { return cmp.Compare(m.offset, o) })
	c.marks = slices.Insert(c.marks, i, mark{offset, sum, time.Now()})
}

// prune drops marks that are no longer asked for, if there are many. The lowest and the highest remain.
func (c *counting) prune(wanted int) {
	const few = 64
	if len(c.marks) <= few+8*wanted {
		return
	}
	lowest, highest := c.marks[0].offset, c.marks[len(c.marks)-1].offset
	c.marks = slices.DeleteFunc(c.marks, func(m mark) bool {
		return m.offset != lowest && m.offset != highest && time.Since(m.used) > markAge
	})
}

// OffsetBefore returns an offset such that the events up to it were created before at, and the event above it was not. It
// reads an event per bisection of the offsets, because times rise with offsets. If a clock was set back, there may be
// several such offsets, and it returns any of them. It returns 0 if there is no older event.
func (e *Engine) OffsetBefore(ctx context.Context, q Querier, at time.Time) (int64, error) {
	first, created, found, err := e.Stores.Streams.Following(ctx, q, 0)
	if err != nil || !found || !created.Before(at) {
		return 0, err
	}
	last, err := e.Stores.Streams.Last(ctx, q, row.Selection{Topic: "*"})
	if err != nil {
		return 0, err
	}
	before, notBefore := first, last+1
	for notBefore-before > 1 {
		middle := before + (notBefore-before)/2
		offset, created, found, err := e.Stores.Streams.Following(ctx, q, middle-1)
		switch {
		case err != nil:
			return 0, err
		case found && offset < notBefore && created.Before(at):
			before = offset
		default:
			notBefore = middle
		}
	}
	return before, nil
}
