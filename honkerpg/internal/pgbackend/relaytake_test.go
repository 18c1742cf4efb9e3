package pgbackend_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// owners lets two takers look for a free partition before either takes it, and returns how many have got the partition
// that has a message.
func (r *relayBench) owners(naive bool) (n int) {
	ctx := r.t.Context()
	now := r.b.Now()
	one, err := r.app.BeginTx(ctx, nil)
	require.NoError(r.t, err)
	defer one.Rollback()
	take := func(ctx context.Context, q engine.Querier, owner string) bool {
		_, found, err := r.store.Take(ctx, q, row.RelayWanted{Queues: []row.RelayQueue{{Name: relayQueue, Lease: time.Hour, Batch: 8}}}, owner, now)
		require.NoError(r.t, err)
		return found
	}
	if !naive {
		if take(ctx, one, "one") {
			n++
		}
		two := make(chan bool, 1)
		go func() {
			err := r.write(func(ctx context.Context, q engine.Querier, _ time.Time) error { two <- take(ctx, q, "two"); return nil })
			if err != nil {
				r.t.Error(err)
			}
		}()
		require.NoError(r.t, one.Commit())
		if <-two {
			n++
		}
		return n
	}
	two, err := r.app.BeginTx(ctx, nil)
	require.NoError(r.t, err)
	defer two.Rollback()
	free := map[string]bool{}
	for owner, q := range map[string]engine.Querier{"one": one, "two": two} {
		var partition int64
		rows, err := q.QueryContext(ctx, r.schema.SQL(`SELECT partition FROM honker.relay_partition WHERE partition = 0 AND lease_until IS NULL`))
		require.NoError(r.t, err)
		free[owner] = rows.Next() && rows.Scan(&partition) == nil
		require.NoError(r.t, rows.Close())
	}
	const update = `UPDATE honker.relay_partition SET owner = $1, epoch = epoch + 1, lease_until = clock_timestamp() + interval '1 hour' WHERE partition = 0`
	for _, taker := range []struct {
		owner string
		tx    interface {
			engine.Querier
			Commit() error
		}
	}{{"one", one}, {"two", two}} {
		if free[taker.owner] {
			_, err := taker.tx.ExecContext(ctx, r.schema.SQL(update), taker.owner)
			require.NoError(r.t, err)
			require.NoError(r.t, taker.tx.Commit())
			n++
		}
	}
	return n
}

// Of two takers at once, a single taker gets a partition. In the control, which looks and takes in two statements, both do.
func TestRelayTakeHasOneOwner(t *testing.T) {
	for _, naive := range []bool{false, true} {
		r := newRelayBench(t, false)
		require.NoError(t, r.write(func(ctx context.Context, q engine.Querier, now time.Time) error {
			_, err := r.store.Send(ctx, q, relayQueue, []row.RelayMessage{{Type: "t", Payload: []byte("x")}}, now)
			return err
		}))
		want := 1
		if naive {
			want = 2
		}
		require.Equal(t, want, r.owners(naive), "naive: %v", naive)
	}
}
