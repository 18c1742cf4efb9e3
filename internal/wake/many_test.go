package wake

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/row"
)

// fakeLog is a log whose rows are names. It counts the rows that were read.
type fakeLog struct {
	names []string
	read  int
}

func (l *fakeLog) head(context.Context, row.Querier) (int64, error) {
	return int64(len(l.names)), nil
}

func (l *fakeLog) since(_ context.Context, _ row.Querier, after int64, limit int) (row.Added, int, int64, error) {
	added, rows := row.Added{}, l.names[after:]
	rows = rows[:min(len(rows), limit)]
	l.read += len(rows)
	for _, name := range rows {
		added[name] = map[string]bool{"": true}
	}
	return added, len(rows), after + int64(len(rows)), nil
}

// statements returns queries that read l, as the log of both messages and events.
func (l *fakeLog) statements() Statements {
	log := Log{Head: l.head, Since: l.since}
	return Statements{Messages: log, Events: log}
}

func (l *fakeLog) add(n int, name string) {
	for range n {
		l.names = append(l.names, name)
	}
}

// The cost of a wake-up depends on the number of waiters that are waiting for the changes. Rows for other names don't
// wake any waiter, whether they arrive separately or in a single commit.
func TestNotifier_ManyWaiters_OnlyThoseConcerned(t *testing.T) {
	const others = 5 * tailPage
	for name, kind := range map[string]Kind{"channels": ChannelMessage, "topics": TopicEvent} {
		t.Run(name, func(t *testing.T) {
			n, _ := newNotifier(t)
			log := new(fakeLog)
			n.sources = newSources(log.statements(), n)
			for i := range others {
				defer n.Subscribe(Key{Kind: kind, Name: fmt.Sprint("other ", i)}).Close()
			}
			w := n.Subscribe(Key{Kind: kind, Name: "mine"})
			defer w.Close()
			ask := func() int { return n.ask(t.Context(), nil, AllSignals) }
			require.Equal(t, others+1, ask(), "the first look knows nothing of what was before")
			woken := 0
			for range 3 * tailPage {
				log.add(1, "elsewhere")
				woken += ask()
			}
			require.Zero(t, woken)
			log.add(3*tailPage, "elsewhere") // in one commit
			require.Zero(t, ask())
			<-w.C()
			log.add(1, "mine")
			require.Equal(t, 1, ask())
			require.Len(t, w.C(), 1)
			require.Equal(t, 6*tailPage+1, log.read, "each row is read once")

			// With more new rows than waiters, waking all waiters is cheaper than reading on.
			log.add(2*others, "elsewhere")
			require.Equal(t, others+1, ask())
			require.LessOrEqual(t, log.read, 6*tailPage+others+2)
			require.Zero(t, ask())
		})
	}
}

// A selection that skips events is woken occasionally, so that it doesn't fall further and further behind. Waiters
// for a single topic aren't.
func TestNotifier_ManyWaiters_SparseCatchUp(t *testing.T) {
	n, _ := newNotifier(t)
	log := new(fakeLog)
	n.sources = newSources(log.statements(), n)
	plain := n.Subscribe(Key{Kind: TopicEvent, Name: "plain"})
	defer plain.Close()
	sparse := map[string]*Waiter{
		"pattern":    n.Subscribe(Key{Kind: TopicEvent, Name: "some*"}),
		"one key":    n.Subscribe(Key{Kind: TopicEvent, Name: "busy", Filter: &row.Filter{Op: row.KeyIs, Key: "a"}}),
		"key prefix": n.Subscribe(Key{Kind: TopicEvent, Name: "busy", Filter: &row.Filter{Op: row.KeyPrefix, Key: "a"}}),
	}
	ask := func() int { return n.ask(t.Context(), nil, AllSignals) }
	require.Equal(t, len(sparse)+1, ask())
	<-plain.C()
	for name, w := range sparse {
		defer w.Close()
		require.Len(t, w.C(), 1, name)
		<-w.C()
	}
	woken := 0
	for range tailPage {
		require.Zero(t, woken)
		log.add(1, "busy")
		woken += ask()
	}
	require.Equal(t, len(sparse), woken)
	require.Empty(t, plain.C())
}
