//go:build unix

package pgbackend_test

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/honkerpg/internal/pgbackend"
	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/honkerpg/internal/pgstore/relays"
	"github.com/honker-go/honker/honkerpg/internal/pgtest"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// relayBench is a relay queue under test, with a pool for the application's transactions.
type relayBench struct {
	t      *testing.T
	b      *pgbackend.Backend
	app    *sql.DB
	schema pgsql.Schema
	store  engine.RelayStore
	naive  bool // the control: applications' transactions draw the numbers themselves
}

const (
	relayPartitions = 4
	relayQueue      = "q"
)

func newRelayBench(t *testing.T, naive bool) *relayBench {
	t.Helper()
	schema := pgsql.Schema(pgtest.Schema(t))
	config, err := pgx.ParseConfig(pgtest.DSN(t))
	require.NoError(t, err)
	app := stdlib.OpenDB(*config)
	t.Cleanup(func() { require.NoError(t, app.Close()) })
	r := &relayBench{t: t, b: open(t, schema, nil), app: app, schema: schema, store: relays.Families{Schema: schema}.Family(""), naive: naive}
	require.NoError(t, r.write(func(ctx context.Context, q engine.Querier, now time.Time) error {
		_, _, err := r.store.Register(ctx, q, relayQueue, relayPartitions, now)
		return err
	}))
	return r
}

func (r *relayBench) write(f func(ctx context.Context, q engine.Querier, now time.Time) error) error {
	return r.b.Write(context.Background(), engine.OpFunc(f))
}

// sendTx sends a message in an application's transaction.
func (r *relayBench) sendTx(tx *sql.Tx, partition int64, payload string) error {
	ctx := context.Background()
	if r.naive {
		_, err := tx.ExecContext(ctx, r.schema.SQL(`INSERT INTO honker.relay_message (family, queue, partition, key, type, payload, created_at)
VALUES ('', $1, $2, '', 't', $3, $4)`), relayQueue, partition, []byte(payload), r.b.Now())
		return err
	}
	ids, err := r.store.Send(ctx, tx, relayQueue, []row.RelayMessage{{Partition: partition, Type: "t", Payload: []byte(payload)}}, r.b.Now())
	if err == nil && (len(ids) != 1 || ids[0] != 0) {
		err = fmt.Errorf("the ids are %v, although nothing has a number before the commit", ids)
	}
	return err
}

// delivery is a message that a taker has finished.
type delivery struct {
	id, number int64 // number counts within the partition
	payload    string
}

// step takes a partition, and finishes some of its messages. It returns false if there was none.
func (r *relayBench) step(owner string, finish func(n int) int, keep func(partition int64, done []delivery)) (found bool, err error) {
	w := row.RelayWanted{Queues: []row.RelayQueue{{Name: relayQueue, Lease: time.Hour, Batch: 8}}}
	var b row.RelayBatch
	err = r.write(func(ctx context.Context, q engine.Querier, now time.Time) (err error) {
		b, found, err = r.store.Take(ctx, q, w, owner, now)
		return err
	})
	if err != nil || !found {
		return false, err
	}
	n := finish(len(b.Messages))
	p := row.RelayProgress{Finished: int64(n), After: b.Cursor}
	var done []delivery
	for i, m := range b.Messages[:n] {
		p.Cursor = m.ID
		done = append(done, delivery{m.ID, b.Processed + 1 + int64(i), string(m.Payload)})
	}
	keep(b.Partition, done) // before the save, since nobody else may have the partition
	held := false
	err = r.write(func(ctx context.Context, q engine.Querier, now time.Time) (err error) {
		held, err = r.store.Save(ctx, q, b.RelayLease, p, now)
		return err
	})
	if err == nil && !held {
		err = fmt.Errorf("the lease of partition %d was lost", b.Partition)
	}
	return true, err
}

// all finishes every message of a batch.
func all(n int) int { return n }

// drain takes until nothing is left, and returns the payloads of the messages.
func (r *relayBench) drain() (payloads []string) {
	r.t.Helper()
	for empty := 0; empty < 2; { // the first empty look numbers what is pending
		found, err := r.step("drain", all, func(_ int64, done []delivery) {
			for _, d := range done {
				payloads = append(payloads, d.payload)
			}
		})
		require.NoError(r.t, err)
		if !found {
			empty++
		}
	}
	return payloads
}

// straddle delivers a message that was sent and committed while an earlier sender's transaction was open, then lets the
// earlier transaction commit, and returns the messages that were delivered.
func (r *relayBench) straddle() []string {
	r.t.Helper()
	begin := func() *sql.Tx {
		tx, err := r.app.BeginTx(r.t.Context(), nil)
		require.NoError(r.t, err)
		return tx
	}
	early, late := begin(), begin()
	require.NoError(r.t, r.sendTx(early, 0, "early"))
	require.NoError(r.t, r.sendTx(late, 0, "late"))
	require.NoError(r.t, late.Commit())
	delivered := r.drain()
	require.NoError(r.t, early.Commit())
	return append(delivered, r.drain()...)
}

// A message whose transaction commits after the delivery of a message that was sent later is not lost. In the control,
// which numbers messages in the transaction, the first message is below the cursor when it appears.
func TestRelayLateCommit(t *testing.T) {
	require.Equal(t, []string{"late", "early"}, newRelayBench(t, false).straddle())
	require.Equal(t, []string{"late"}, newRelayBench(t, true).straddle())
}

// Messages of a transaction that was committed before another message was sent come first, although nobody has numbered
// them yet.
func TestRelayPendingComesFirst(t *testing.T) {
	r := newRelayBench(t, false)
	tx, err := r.app.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	require.NoError(t, r.sendTx(tx, 0, "1"))
	require.NoError(t, r.sendTx(tx, 0, "2"))
	require.NoError(t, tx.Commit())
	require.NoError(t, r.write(func(ctx context.Context, q engine.Querier, now time.Time) error {
		ids, err := r.store.Send(ctx, q, relayQueue, []row.RelayMessage{{Type: "t", Payload: []byte("3")}}, now)
		require.Len(t, ids, 1)
		require.Positive(t, ids[0])
		return err
	}))
	require.Equal(t, []string{"1", "2", "3"}, r.drain())
}

// stress is the outcome of a run with several senders and takers.
type stress struct {
	sync.Mutex
	committed map[string]bool
	delivered [relayPartitions][]delivery
}

// send runs a sender, which alternates between slow transactions of the application, of which some are rolled back, and
// ops of honker's own.
func (s *stress) send(r *relayBench, sender, messages int) error {
	for i := range messages {
		partition, payload := rand.Int64N(relayPartitions), strconv.Itoa(sender)+"/"+strconv.Itoa(i)
		commit := i%5 != 4
		var err error
		if i%3 == 0 && commit {
			err = r.write(func(ctx context.Context, q engine.Querier, now time.Time) error {
				_, err := r.store.Send(ctx, q, relayQueue, []row.RelayMessage{{Partition: partition, Type: "t", Payload: []byte(payload)}}, now)
				return err
			})
		} else {
			err = s.sendSlowly(r, partition, payload, commit)
		}
		if err != nil {
			return err
		}
		if commit {
			s.Lock()
			s.committed[payload] = true
			s.Unlock()
		}
	}
	return nil
}

// sendSlowly sends in a transaction that the server keeps open for a while.
func (s *stress) sendSlowly(r *relayBench, partition int64, payload string, commit bool) error {
	tx, err := r.app.BeginTx(context.Background(), nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if err := r.sendTx(tx, partition, payload); err != nil {
		return err
	}
	if _, err := tx.ExecContext(context.Background(), `SELECT pg_sleep($1)`, rand.Float64()/100); err != nil || !commit {
		return err
	}
	return tx.Commit()
}

// keep notes finished messages.
func (s *stress) keep(partition int64, done []delivery) {
	s.Lock()
	defer s.Unlock()
	s.delivered[partition] = append(s.delivered[partition], done...)
}

// runStress lets senders and takers work at the same time, and takes what is left.
func runStress(t *testing.T, naive bool) *stress {
	t.Helper()
	r, s := newRelayBench(t, naive), &stress{committed: make(map[string]bool)}
	const senders, takers, messages = 8, 3, 40
	errs := make(chan error, senders+takers)
	var sending, taking sync.WaitGroup
	var sent atomic.Bool
	for i := range senders {
		sending.Go(func() { errs <- s.send(r, i, messages) })
	}
	for i := range takers {
		taking.Go(func() {
			for {
				last := sent.Load()
				found, err := r.step(fmt.Sprint("taker", i), func(n int) int { return rand.IntN(n + 1) }, s.keep)
				if err != nil || last && !found {
					errs <- err
					return
				}
			}
		})
	}
	sending.Wait()
	sent.Store(true)
	taking.Wait()
	for empty := 0; empty < 2; {
		found, err := r.step("last", all, s.keep)
		require.NoError(t, err)
		if !found {
			empty++
		}
	}
	for range senders + takers {
		require.NoError(t, <-errs)
	}
	return s
}

// lost returns how many committed messages were not delivered. It fails the test if a message was delivered twice or
// without a commit, or not in the order of the numbers.
func (s *stress) lost(t *testing.T) int {
	t.Helper()
	seen := make(map[string]bool)
	for partition, all := range s.delivered {
		for i, d := range all {
			require.EqualValues(t, i+1, d.number, "partition %d", partition)
			require.True(t, i == 0 || all[i-1].id < d.id, "partition %d: %v is after %v", partition, d, all[max(0, i-1)])
			require.True(t, s.committed[d.payload], "%s was not committed", d.payload)
			require.False(t, seen[d.payload], "%s was delivered twice", d.payload)
			seen[d.payload] = true
		}
	}
	return len(s.committed) - len(seen)
}

// Several senders with slow transactions and rollbacks and several takers lose no message, and each partition delivers in
// the order of its numbers. The control, which numbers messages in the transactions, loses some.
func TestRelayStress(t *testing.T) {
	require.Zero(t, runStress(t, false).lost(t))
	require.Positive(t, runStress(t, true).lost(t), "the control must fail")
}

// A partition has one owner, however many takers there are at the same time.
func TestRelayTakesAtOnce(t *testing.T) {
	r := newRelayBench(t, false)
	require.NoError(t, r.write(func(ctx context.Context, q engine.Querier, now time.Time) error {
		var messages []row.RelayMessage
		for partition := range int64(relayPartitions) {
			messages = append(messages, row.RelayMessage{Partition: partition, Type: "t", Payload: []byte("x")})
		}
		_, err := r.store.Send(ctx, q, relayQueue, messages, now)
		return err
	}))
	w := row.RelayWanted{Queues: []row.RelayQueue{{Name: relayQueue, Lease: time.Hour, Batch: 8}}}
	for round := range 20 {
		now := r.b.Now().Add(time.Duration(round) * 2 * time.Hour) // all leases of the last round have ended
		var takers sync.WaitGroup
		owners, errs := make(chan row.RelayBatch, 3*relayPartitions), make(chan error, 3*relayPartitions)
		for i := range 3 * relayPartitions {
			takers.Go(func() {
				errs <- r.write(func(ctx context.Context, q engine.Querier, _ time.Time) error {
					b, found, err := r.store.Take(ctx, q, w, fmt.Sprint(i), now)
					if err == nil && found {
						owners <- b
					}
					return err
				})
			})
		}
		takers.Wait()
		close(owners)
		close(errs)
		for err := range errs {
			require.NoError(t, err)
		}
		epochs := make(map[int64]int64)
		for b := range owners {
			require.NotContains(t, epochs, b.Partition)
			epochs[b.Partition] = b.Epoch
			require.EqualValues(t, round+1, b.Epoch)
		}
		require.Len(t, epochs, relayPartitions, "a partition that another taker has locked is not missed")
	}
}

// Replays at the same time hold different dead letters, and together all of them.
func TestRelayReplaysAtOnce(t *testing.T) {
	r := newRelayBench(t, false)
	const letters, replays = 60, 6
	ids := r.kill(letters)
	held, errs := make(chan []row.RelayDead, replays), make(chan error, replays)
	for i := range replays {
		go func() {
			errs <- r.write(func(ctx context.Context, q engine.Querier, now time.Time) error {
				all, err := r.store.Replay(ctx, q, row.RelayReplay{
					RelayDeadFilter: row.RelayDeadFilter{Queue: relayQueue}, Limit: letters / replays, Holder: fmt.Sprint(i), Until: now.Add(time.Hour),
				}, now)
				held <- all
				return err
			})
		}()
	}
	var found []int64
	for range replays {
		require.NoError(t, <-errs)
		for _, d := range <-held {
			found = append(found, d.ID)
		}
	}
	require.ElementsMatch(t, ids, found)
}

// kill makes dead letters of partition 0 and returns their ids.
func (r *relayBench) kill(n int) (ids []int64) {
	r.t.Helper()
	w := row.RelayWanted{Queues: []row.RelayQueue{{Name: relayQueue, Lease: time.Hour, Batch: n}}}
	require.NoError(r.t, r.write(func(ctx context.Context, q engine.Querier, now time.Time) error {
		messages := make([]row.RelayMessage, n)
		for i := range messages {
			messages[i] = row.RelayMessage{Type: "t", Payload: []byte(strconv.Itoa(i))}
		}
		var err error
		if ids, err = r.store.Send(ctx, q, relayQueue, messages, now); err != nil {
			return err
		}
		b, _, err := r.store.Take(ctx, q, w, "killer", now)
		if err != nil {
			return err
		}
		p := row.RelayProgress{Finished: int64(n), Cursor: ids[n-1]}
		for i, id := range ids {
			p.Dead = append(p.Dead, row.RelayDeath{ID: id, Seq: int64(i + 1), Attempts: 1})
		}
		_, err = r.store.Save(ctx, q, b.RelayLease, p, now)
		return err
	}))
	return ids
}

// A requeue in an application's transaction numbers nothing before the commit, and takes no lock that a sender waits for.
func TestRelayRequeueInTransaction(t *testing.T) {
	r := newRelayBench(t, false)
	ids := r.kill(2)
	tx, err := r.app.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback() }()
	sent, err := r.store.Requeue(t.Context(), tx, relayQueue, ids, r.b.Now())
	require.NoError(t, err)
	require.Equal(t, []int64{0, 0}, sent)
	require.NoError(t, r.write(func(ctx context.Context, q engine.Querier, now time.Time) error {
		_, err := r.store.Send(ctx, q, relayQueue, []row.RelayMessage{{Type: "t", Payload: []byte("new")}}, now)
		return err
	}))
	require.Equal(t, []string{"new"}, r.drain())
	require.NoError(t, tx.Commit())
	require.Equal(t, []string{"0", "1"}, r.drain())
}

// A trigger that drops rows makes the call fail, so that it loses no message.
func TestRelayTriggers(t *testing.T) {
	r := newRelayBench(t, false)
	ids := r.kill(1)
	send := func(ctx context.Context, q engine.Querier, now time.Time) error {
		_, err := r.store.Send(ctx, q, relayQueue, []row.RelayMessage{{Type: "t", Payload: []byte("x")}}, now)
		return err
	}
	requeue := func(ctx context.Context, q engine.Querier, now time.Time) error {
		_, err := r.store.Requeue(ctx, q, relayQueue, ids, now)
		return err
	}
	require.NoError(t, r.write(send))
	save := func(ctx context.Context, q engine.Querier, now time.Time) error {
		w := row.RelayWanted{Queues: []row.RelayQueue{{Name: relayQueue, Lease: time.Hour, Batch: 1}}}
		b, _, err := r.store.Take(ctx, q, w, "me", now)
		if err != nil {
			return err
		}
		id := b.Messages[0].ID
		_, err = r.store.Save(ctx, q, b.RelayLease, row.RelayProgress{Finished: 1, After: b.Cursor, Cursor: id, Dead: []row.RelayDeath{{ID: id, Seq: 2}}}, now)
		return err
	}
	_, err := r.app.ExecContext(t.Context(), r.schema.SQL(`CREATE FUNCTION honker.refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'`))
	require.NoError(t, err)
	for _, c := range []struct {
		on   string
		f    func(ctx context.Context, q engine.Querier, now time.Time) error
		want error
	}{
		{"INSERT ON honker.relay_message", send, row.ErrNotInserted},
		{"INSERT ON honker.relay_message", requeue, row.ErrStuck},
		{"DELETE ON honker.relay_dead", requeue, row.ErrStuck},
		{"INSERT ON honker.relay_dead", save, row.ErrNotInserted},
	} {
		_, table, _ := strings.Cut(c.on, " ON ")
		_, err := r.app.ExecContext(t.Context(), r.schema.SQL(`CREATE TRIGGER refuse BEFORE `+c.on+` FOR EACH ROW EXECUTE FUNCTION honker.refuse()`))
		require.NoError(t, err)
		require.ErrorIs(t, r.write(c.f), c.want, c.on)
		_, err = r.app.ExecContext(t.Context(), r.schema.SQL(`DROP TRIGGER refuse ON `+table))
		require.NoError(t, err)
	}
	require.NoError(t, r.write(save))
	require.NoError(t, r.write(requeue))
	require.Equal(t, []string{"0"}, r.drain())
}

// Finished messages that another program has inserted are found, and deleted up to a limit.
func TestRelayVacuum(t *testing.T) {
	r := newRelayBench(t, false)
	r.kill(3)
	_, err := r.app.ExecContext(t.Context(), r.schema.SQL(`INSERT INTO honker.relay_message (id, family, queue, partition, key, type, payload, created_at)
SELECT -i, '', $1, p, '', 't', '', now() FROM generate_series(1, 3) i, unnest('{0, 64}'::bigint[]) p`), relayQueue)
	require.NoError(t, err)
	leftovers := func() (left row.RelayLeftovers) {
		require.NoError(t, r.b.Read(t.Context(), true, func(ctx context.Context, q engine.Querier) (err error) {
			left, err = r.store.Leftovers(ctx, q, []string{"other", relayQueue})
			return err
		}))
		return left
	}
	strays := []row.RelayPartition{{Queue: relayQueue, Partition: 64}}
	require.Equal(t, row.RelayLeftovers{Strays: strays, Finished: []string{relayQueue}}, leftovers())
	for _, want := range []int{2, 1, 0} {
		require.NoError(t, r.write(func(ctx context.Context, q engine.Querier, _ time.Time) error {
			n, err := r.store.Vacuum(ctx, q, relayQueue, 2)
			require.Equal(t, want, n)
			return err
		}))
	}
	require.Equal(t, row.RelayLeftovers{Strays: strays}, leftovers())
}
