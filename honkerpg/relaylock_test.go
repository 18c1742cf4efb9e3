//go:build unix

package honkerpg_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/relay"
)

// A processor saves its progress without waiting for a transaction that has locked another partition: two that waited for
// each other would deadlock. The other partition is delivered once its transaction has ended.
func TestRelay_ProcessorsDoNotWaitForEachOther(t *testing.T) {
	db, f := newForeign(t)
	delivered, release, finished := make(chan string, 2), make(chan struct{}), make(chan relay.Finished, 2)
	r := relay.New(db, &relay.Options{Processors: 1, Observer: &relay.Observer{Finished: func(e relay.Finished) { finished <- e }}})
	q := r.Queue("hooks", 2)
	q.Handle(func(_ context.Context, m *relay.Message) error {
		delivered <- string(m.Payload)
		<-release
		return nil
	})
	send := func(partition int) {
		for n := 0; ; n++ {
			if key := fmt.Sprint(n); q.Partition(key) == partition {
				_, err := q.Send(t.Context(), relay.Outgoing{Key: key, Payload: fmt.Append(nil, partition)})
				require.NoError(t, err)
				return
			}
		}
	}
	send(0)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- honker.Run(ctx, r.Run) }()
	require.Equal(t, "0", <-delivered)
	send(1)
	other, err := f.pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = other.Rollback(context.Background()) }()
	_, err = other.Exec(t.Context(), f.text(`SELECT FROM honker.relay_partition WHERE queue = 'hooks' AND partition = 1 FOR UPDATE`))
	require.NoError(t, err)
	close(release)
	require.Eventually(t, func() bool { return len(finished) > 0 || f.isAwaited(other) }, 30*time.Second, time.Millisecond)
	require.NotEmpty(t, finished, "the progress of partition 0 waits for a transaction that has nothing to do with it")
	require.NoError(t, other.Rollback(t.Context()))
	require.Equal(t, "1", <-delivered)
	cancel()
	require.NoError(t, <-ended)
}
