package wake

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A notice for a queue wakes its waiters without a question to the database. The notifier of this test has none: it would
// panic. A notice for a queue with the same signal as another awaited queue, or for several queues, is no certain answer.
func TestNotifier_Notice(t *testing.T) {
	n, _ := newNotifier(t)
	w := n.Subscribe(Key{Kind: QueueReady, Name: "a"})
	defer w.Close()
	require.Equal(t, 1, n.changed(Notice, SignalsOf(Queue("a"))))
	require.Len(t, w.C(), 1)
	require.Zero(t, n.changed(Notice, SignalsOf(Lock("x"))), "nobody waits for it")
	require.Panics(t, func() { n.changed(Notice, KindSignals(QueueReady)) }, "it asks")
	other := n.Subscribe(Key{Kind: QueueReady, Name: "b"})
	defer other.Close()
	woken, rest := n.wakeQueue(SignalsOf(Queue("a"), Queue("b")))
	require.Zero(t, woken)
	require.Equal(t, SignalsOf(Queue("a"), Queue("b")), rest)
}

// Other processes are told of changes that take effect before they look by themselves, and of no later ones.
func TestNotifier_Announce(t *testing.T) {
	n, w := newNotifier(t)
	mine := n.Subscribe(Key{Kind: QueueReady, Name: "a"})
	defer mine.Close()
	n.Announce(time.Now().Add(time.Hour), Queue("a"))
	require.Zero(t, w.raised)
	n.Announce(time.Now().Add(time.Second), Queue("a"))
	require.Equal(t, SignalsOf(Queue("a")), w.raised)
	require.Empty(t, mine.C(), "this process looks after each of its commits")
}
