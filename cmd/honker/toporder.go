package main

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/honker-go/honker"
)

// order is an order of the queues in a frame.
type order int

const (
	orderTrouble order = iota
	orderReady
	orderOldest
	orderFailures
	orderName
	orders // number of orders
)

func (o order) String() string {
	return [...]string{"trouble", "ready", "oldest", "failures", "name"}[o]
}

// next returns the order after o.
func (o order) next() order { return (o + 1) % orders }

// sort sorts queues in the frame's order. Queues that are equal in it are sorted by traffic, then by name.
func (f frame) sort(queues []honker.QueueStats) {
	trouble := f.troubles()
	slices.SortStableFunc(queues, func(a, b honker.QueueStats) int {
		x, y := f.Flows[a.Queue], f.Flows[b.Queue]
		first := 0
		switch f.order {
		case orderTrouble:
			first = cmp.Compare(trouble[b.Queue], trouble[a.Queue])
		case orderReady:
			first = cmp.Compare(b.Ready.N, a.Ready.N)
		case orderOldest:
			first = cmp.Compare(f.age(b.OldestReady), f.age(a.OldestReady))
		case orderFailures:
			first = cmp.Compare(y.Fail, x.Fail)
		case orderName:
			return strings.Compare(a.Queue, b.Queue)
		}
		return cmp.Or(first, cmp.Compare(y.In+y.Out+y.Fail, x.In+x.Out+x.Fail), strings.Compare(a.Queue, b.Queue))
	})
}

// troubles returns a number for each queue that has a problem, the highest for the most severe problem.
func (f frame) troubles() map[string]int {
	all := ungroup(f.Problems)
	numbers := make(map[string]int)
	for i, p := range all {
		numbers[p.Queue] = max(numbers[p.Queue], len(all)-i)
	}
	return numbers
}

// age returns the time since t, or 0 if t is zero.
func (f frame) age(t time.Time) time.Duration {
	if t.IsZero() {
		return 0
	}
	return f.At.Sub(t)
}
