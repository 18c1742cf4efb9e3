//go:build unix

package move_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkerpg/move"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/relay"
)

func send(t *testing.T, q *relay.Queue, key string, from, to int) {
	t.Helper()
	for n := from; n <= to; n++ {
		_, err := q.Send(t.Context(), relay.Outgoing{Key: key, Type: "text/plain", Payload: fmt.Appendf(nil, "%s%d", key, n)})
		require.NoError(t, err)
	}
}

// handled runs a handler until it has handled n messages without an error, and returns them in order.
func handled(t *testing.T, r *relay.Relay, q *relay.Queue, n int, h func(m *relay.Message) error) (all []*relay.Message) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	q.Handle(func(_ context.Context, m *relay.Message) error {
		err := h(m)
		if err == nil {
			if all = append(all, m); len(all) == n {
				cancel()
			}
		}
		return err
	})
	require.NoError(t, r.Run(ctx))
	require.Len(t, all, n)
	return all
}

func fine(*relay.Message) error { return nil }

// A message of a relay keeps its place, key, type, time and number, and a partition its failed attempts. Dead letters keep
// their errors, also in a second family with the same ids.
func TestRun_Relays(t *testing.T) {
	t.Parallel()
	for _, family := range []string{"", "billing"} {
		t.Run(family, func(t *testing.T) {
			t.Parallel()
			from, to := openFile(t), openServer(t)
			o := &relay.Options{Family: family, Processors: 1, Batch: 1}
			old, twin := relay.New(from, o), relay.New(from, &relay.Options{Family: "twin"}).Queue("hooks", 1)
			q := old.Queue("hooks", 1)
			send(t, q, "a", 1, 2)
			send(t, twin, "t", 1, 3)
			handled(t, old, q, 1, func(m *relay.Message) error {
				if m.Seq == 1 {
					return relay.Reject(errors.New("never"))
				}
				return nil
			})
			send(t, q, "a", 3, 5)
			_, err := q.Send(t.Context(), relay.Outgoing{Payload: []byte{0, 0xff}})
			require.NoError(t, err)
			fail(t, from, family)
			before, err := q.Info(t.Context())
			require.NoError(t, err)

			r := run(t, from, to, nil)
			require.EqualValues(t, 7, r.Messages)
			require.EqualValues(t, 1, r.Letters)
			require.Zero(t, r.LateMessages)
			require.Empty(t, r.Notes)
			for _, l := range r.Relays {
				require.Zero(t, l.Waiting+l.Dead+l.Leased)
			}
			fresh := relay.New(to, o)
			moved := fresh.Queue("hooks", 1)
			after, err := moved.Info(t.Context())
			require.NoError(t, err)
			want, got := before.Partitions[0], after.Partitions[0]
			want.Epoch, got.Epoch = 0, 0
			require.Equal(t, want, got)
			require.Equal(t, before.Dead, after.Dead)
			for d, err := range moved.Dead(t.Context(), nil) {
				require.NoError(t, err)
				require.Equal(t, "never", d.LastError)
				require.Equal(t, "a1", string(d.Payload))
				require.EqualValues(t, 1, d.Seq)
			}
			send(t, moved, "a", 6, 6)
			all := handled(t, fresh, moved, 5, fine)
			for i, want := range []string{"a3", "a4", "a5", "\x00\xff", "a6"} {
				require.Equal(t, want, string(all[i].Payload))
				require.EqualValues(t, 3+i, all[i].Seq)
			}
			require.Equal(t, 1, all[0].Attempt)
			require.Equal(t, "text/plain", all[0].Type)
			require.Equal(t, "a", all[0].Key)
			// The ids of the families do not collide where they share a table.
			other := relay.New(to, &relay.Options{Family: "twin", Processors: 1})
			_ = handled(t, other, other.Queue("hooks", 1), 2, func(m *relay.Message) error {
				if m.Seq == 1 {
					return relay.Reject(errors.New("never"))
				}
				return nil
			})
		})
	}
}

// lease takes the partition of the queue hooks.
func lease(t *testing.T, db *honker.DB, family string, d time.Duration) row.RelayBatch {
	t.Helper()
	var b row.RelayBatch
	e := engine.Of(db)
	require.NoError(t, e.Write(t.Context(), "", engine.OpFunc(func(ctx context.Context, q engine.Querier, now time.Time) (err error) {
		w := row.RelayWanted{Queues: []row.RelayQueue{{Name: "hooks", Lease: d, Batch: 2}}}
		found := false
		b, found, err = e.Stores.Relays.Family(family).Take(ctx, q, w, "me", now)
		require.True(t, found)
		return err
	})))
	return b
}

// save ends a lease after the first n messages of its batch. It returns false if the lease was lost.
func save(t *testing.T, db *honker.DB, family string, b row.RelayBatch, n int, cause string) (ok bool) {
	t.Helper()
	p := row.RelayProgress{Finished: int64(n), After: b.Cursor, Cursor: b.Cursor, LastError: cause}
	if n > 0 {
		p.Cursor = b.Messages[n-1].ID
	}
	if cause != "" {
		p.Attempts = 1
	}
	e := engine.Of(db)
	require.NoError(t, e.Write(t.Context(), "", engine.OpFunc(func(ctx context.Context, q engine.Querier, now time.Time) (err error) {
		ok, err = e.Stores.Relays.Family(family).Save(ctx, q, b.RelayLease, p, now)
		return err
	})))
	return ok
}

// fail lets the first message fail.
func fail(t *testing.T, db *honker.DB, family string) {
	t.Helper()
	require.True(t, save(t, db, family, lease(t, db, family, time.Minute), 0, "first"))
}

// The mover waits for the handler that has a partition. As soon as it saves its batch, no other handler of the file gets the
// rest. A handler whose lease has ended loses it.
func TestRun_RelayLeased(t *testing.T) {
	t.Parallel()
	from, to := openFile(t), openServer(t)
	q := relay.New(from, nil).Queue("hooks", 1)
	send(t, q, "a", 1, 5)
	b := lease(t, from, "", time.Minute)
	begun, done := make(chan struct{}, 1), make(chan *move.Report, 1)
	go func() {
		r, err := move.Run(context.WithoutCancel(t.Context()), from, to, &move.Options{Once: true, Progress: func(move.Report) {
			select {
			case begun <- struct{}{}:
			default:
			}
		}})
		if err != nil {
			r = nil
		}
		done <- r
	}()
	<-begun
	<-begun // it waits for the lease
	require.True(t, save(t, from, "", b, 1, ""))
	info, err := q.Info(t.Context())
	require.NoError(t, err)
	require.Contains(t, info.Partitions[0].Owner, "honker move")
	r := <-done
	require.NotNil(t, r)
	require.EqualValues(t, 4, r.Messages)
	fresh := relay.New(to, nil)
	all := handled(t, fresh, fresh.Queue("hooks", 1), 4, fine)
	require.Equal(t, "a2", string(all[0].Payload))
	require.EqualValues(t, 2, all[0].Seq)
	// An old program goes on to send.
	send(t, q, "a", 6, 6)
	run(t, from, to, nil)
	again := relay.New(to, nil)
	require.Equal(t, "a6", string(handled(t, again, again.Queue("hooks", 1), 1, fine)[0].Payload))
}

// A handler that stood still for longer than its lease cannot save after the mover has closed its partition.
func TestRun_RelayLapsed(t *testing.T) {
	t.Parallel()
	from, to := openFile(t), openServer(t)
	send(t, relay.New(from, nil).Queue("hooks", 1), "a", 1, 3)
	b := lease(t, from, "", time.Millisecond)
	require.EqualValues(t, 3, run(t, from, to, nil).Messages)
	require.False(t, save(t, from, "", b, 2, ""))
	fresh := relay.New(to, nil)
	all := handled(t, fresh, fresh.Queue("hooks", 1), 3, fine)
	require.Equal(t, "a1", string(all[0].Payload))
	require.Equal(t, 1, all[0].Attempt)
}

// A message of the file comes before those that were sent to the server, unless a handler of the server has had such a
// message, or may have it. Then it comes last and is reported, and so do the next ones, in order.
func TestRun_RelayLate(t *testing.T) {
	t.Parallel()
	from, to := openFile(t), openServer(t)
	old, fresh := relay.New(from, nil).Queue("hooks", 1), relay.New(to, nil).Queue("hooks", 1)
	send(t, old, "a", 1, 1)
	run(t, from, to, nil)
	send(t, fresh, "b", 1, 3)
	send(t, old, "a", 2, 2)
	require.Zero(t, run(t, from, to, nil).LateMessages) // b1 has not been handled
	b := lease(t, to, "", time.Minute)
	require.Equal(t, "a1", string(b.Messages[0].Payload))
	require.Equal(t, "a2", string(b.Messages[1].Payload))
	require.True(t, save(t, to, "", b, 2, ""))
	b = lease(t, to, "", time.Minute)
	require.Equal(t, "b2", string(b.Messages[1].Payload))
	send(t, old, "a", 3, 3)
	r := run(t, from, to, nil) // would be deleted with the batch of b1 and b2 if it came before them
	require.EqualValues(t, 1, r.LateMessages)
	require.Contains(t, r.Notes[0], "relay /hooks")
	require.True(t, save(t, to, "", b, 2, ""))
	send(t, old, "a", 4, 4)
	require.EqualValues(t, 1, run(t, from, to, nil).LateMessages)
	rest := relay.New(to, nil)
	all := handled(t, rest, rest.Queue("hooks", 1), 3, fine)
	for i, want := range []string{"b3", "a3", "a4"} {
		require.Equal(t, want, string(all[i].Payload))
	}
}

// A relay that has another number of partitions on the server stays as it is, and its handlers go on.
func TestRun_RelayPartitions(t *testing.T) {
	t.Parallel()
	from, to := openFile(t), openServer(t)
	send(t, relay.New(from, nil).Queue("hooks", 2), "a", 1, 2)
	send(t, relay.New(to, nil).Queue("hooks", 4), "b", 1, 1)
	r := run(t, from, to, nil)
	require.Zero(t, r.Messages)
	require.Contains(t, r.Notes[0], "relay /hooks is not moved: it has 2 partitions in the file and 4 in the target")
	require.Equal(t, []move.LeftRelay{{Queue: "hooks", Waiting: 2}}, r.Relays)
	old := relay.New(from, nil)
	handled(t, old, old.Queue("hooks", 2), 2, fine)
}

// Passes counts the passes that have ended. While a pass waits for a handler of the file, Progress reports no pass.
func TestRun_Progress(t *testing.T) {
	t.Parallel()
	from, to := openFile(t), openServer(t)
	_, err := relay.New(from, nil).Queue("hooks", 1).Send(t.Context(), relay.Outgoing{Payload: []byte("1")})
	require.NoError(t, err)
	held := `UPDATE _honkerx_relay_partitions SET owner = ?, lease_until_ms = ?`
	_, err = from.SQL().ExecContext(t.Context(), held, "handler", time.Now().Add(time.Hour).UnixMilli())
	require.NoError(t, err)
	var passes []int
	r := run(t, from, to, &move.Options{Progress: func(r move.Report) {
		if passes = append(passes, r.Passes); len(passes) == 3 { // the handler has the partition for two more reports
			_, err := from.SQL().ExecContext(t.Context(), held, "", 0)
			require.NoError(t, err)
		}
	}})
	require.GreaterOrEqual(t, len(passes), 4)
	require.Equal(t, []int{0, 0, 0, 1}, passes[:4])
	require.EqualValues(t, 1, r.Messages)
}
