package relay_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
	"github.com/honker-go/honker/relay"
)

// insertDead inserts dead letters 1 to n into queue; see testkit.AddDead.
func insertDead(t testing.TB, db *honker.DB, queue *relay.Queue, n int) {
	t.Helper()
	_, err := queue.Send(t.Context(), relay.Outgoing{Partition: 0})
	require.NoError(t, err)
	testkit.AddDead(t, db, queue.Name(), n)
}

// deadQueue returns a queue with two partitions and n dead letters.
func deadQueue(t *testing.T, n int) (*honker.DB, *relay.Queue) {
	t.Helper()
	db := honkertest.Open(t, nil)
	q := relay.New(db, nil).Queue("hooks", 2)
	insertDead(t, db, q, n)
	return db, q
}

// deadIDs returns the IDs of the dead letters that f selects.
func deadIDs(t testing.TB, q *relay.Queue, f *relay.DeadFilter) (ids []int64) {
	t.Helper()
	for d, err := range q.Dead(t.Context(), f) {
		require.NoError(t, err)
		ids = append(ids, d.ID)
	}
	n, err := q.CountDead(t.Context(), f)
	require.NoError(t, err)
	require.EqualValues(t, len(ids), n, "CountDead counts what Dead yields")
	return ids
}

func replay(t testing.TB, q *relay.Queue, n int, hold time.Duration) []*relay.DeadMessage {
	t.Helper()
	dead, err := q.Replay(t.Context(), n, hold, nil)
	require.NoError(t, err)
	return dead
}

func idsOf(dead []*relay.DeadMessage) (ids []int64) {
	for _, d := range dead {
		ids = append(ids, d.ID)
	}
	return ids
}

func onePartition(n int) *relay.DeadFilter { return &relay.DeadFilter{Partition: &n} }

// A dead letter keeps all fields of its message and records why it died.
func TestQueue_Dead_Fields(t *testing.T) {
	_, q := deadQueue(t, 3)
	for d, err := range q.Dead(t.Context(), &relay.DeadFilter{Type: "text/plain"}) {
		require.NoError(t, err)
		require.Equal(t, relay.Message{
			Queue: "hooks", Partition: 1, Seq: 2, ID: 3, Type: "text/plain", Payload: []byte("letter 3"),
			CreatedAt: time.UnixMilli(946684800000), Attempt: 1,
		}, d.Message)
		require.Equal(t, "hooks/1/2", d.IdempotencyKey())
		require.Equal(t, "cause 3", d.LastError)
		require.Equal(t, time.UnixMilli(946684803000).UTC(), d.DiedAt.UTC())
		require.Equal(t, relay.DeadPending, d.State)
		require.Zero(t, d.HoldUntil)
		require.Zero(t, d.SettledAt)
	}
}

// Filters by partition, type, state and time work alone and combined. The zero filter selects
// everything.
func TestQueue_Dead_Filters(t *testing.T) {
	_, q := deadQueue(t, 12)
	require.Equal(t, []int64{1, 2, 3, 4}, idsOf(replay(t, q, 4, time.Hour)))
	_, err := q.Discard(t.Context(), 5)
	require.NoError(t, err)
	since := time.UnixMilli(946684800000)
	zero := 0
	for _, c := range []struct {
		filter *relay.DeadFilter
		want   []int64
	}{
		{nil, []int64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}},
		{&relay.DeadFilter{}, []int64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}},
		{onePartition(0), []int64{2, 4, 6, 8, 10, 12}},
		{onePartition(5), nil},
		{&relay.DeadFilter{Type: "text/plain"}, []int64{3, 6, 9, 12}},
		{&relay.DeadFilter{Type: "text"}, nil},
		{&relay.DeadFilter{State: relay.DeadReplaying}, []int64{1, 2, 3, 4}},
		{&relay.DeadFilter{State: relay.DeadDiscarded}, []int64{5}},
		{&relay.DeadFilter{State: relay.DeadResolved}, nil},
		{&relay.DeadFilter{Since: since.Add(11 * time.Second)}, []int64{11, 12}},
		{&relay.DeadFilter{Since: since.Add(11*time.Second + time.Microsecond)}, []int64{11, 12}},
		{&relay.DeadFilter{Since: since.Add(11*time.Second + time.Millisecond)}, []int64{12}},
		{&relay.DeadFilter{Limit: 2}, []int64{1, 2}},
		{&relay.DeadFilter{Limit: 200}, []int64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}},
		{&relay.DeadFilter{Partition: &zero, Type: "text/plain", State: relay.DeadPending, Since: since.Add(7 * time.Second), Limit: 1}, []int64{12}},
	} {
		require.Equal(t, c.want, deadIDs(t, q, c.filter), "%+v", c.filter)
	}
}

// Dead yields all dead letters across any number of pages, even if payloads are large.
func TestQueue_Dead_Pages(t *testing.T) {
	db, q := deadQueue(t, 345)
	testkit.Exec(t, db, testkit.GrowDead)
	ids := deadIDs(t, q, nil)
	require.Len(t, ids, 345)
	require.True(t, slices.IsSorted(ids))
	require.Len(t, deadIDs(t, q, &relay.DeadFilter{Limit: 230}), 230)
	for range q.Dead(t.Context(), nil) {
		break
	}
}

// Replay takes a dead letter, Reject returns it with an additional attempt, and the next replay
// resolves it.
func TestQueue_Replay_RoundTrip(t *testing.T) {
	_, q := deadQueue(t, 1)
	d := replay(t, q, 5, time.Minute)[0]
	require.Equal(t, relay.DeadReplaying, d.State)
	require.WithinRange(t, d.HoldUntil, time.Now(), time.Now().Add(2*time.Minute))
	require.Empty(t, replay(t, q, 5, time.Minute), "it is held")

	require.NoError(t, d.Reject(t.Context(), testkit.ErrCause))
	require.ErrorIs(t, d.Reject(t.Context(), testkit.ErrCause), honker.ErrClaimLost, "twice")
	for d, err := range q.Dead(t.Context(), nil) {
		require.NoError(t, err)
		require.Equal(t, relay.DeadPending, d.State)
		require.Equal(t, 2, d.Attempt)
		require.Equal(t, testkit.ErrCause.Error(), d.LastError)
		require.ErrorIs(t, d.Resolve(t.Context()), honker.ErrClaimLost, "it was looked at, not taken")
	}

	second := replay(t, q, 5, time.Minute)[0]
	require.ErrorIs(t, d.Resolve(t.Context()), honker.ErrClaimLost, "it is another's")
	require.NoError(t, second.Resolve(t.Context()))
	require.ErrorIs(t, second.Resolve(t.Context()), honker.ErrClaimLost, "twice")
	require.ErrorContains(t, second.Resolve(t.Context()), "dead letter 1")
	for d, err := range q.Dead(t.Context(), nil) {
		require.NoError(t, err)
		require.Equal(t, relay.DeadResolved, d.State)
		require.WithinRange(t, d.SettledAt, time.Now().Add(-time.Minute), time.Now())
		require.Zero(t, d.HoldUntil)
	}
	require.Empty(t, replay(t, q, 5, time.Minute))
	require.ErrorIs(t, new(relay.DeadMessage).Resolve(t.Context()), honker.ErrClaimLost, "made by hand")
}

// A dead letter whose replay was rejected comes after dead letters that were never replayed.
func TestQueue_Replay_Fair(t *testing.T) {
	honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
		q := relay.New(db, nil).Queue("hooks", 2)
		insertDead(t, db, q, 3)
		var order []int64
		for range 6 {
			d := replay(t, q, 1, time.Minute)[0]
			order = append(order, d.ID)
			time.Sleep(time.Millisecond)
			require.NoError(t, d.Reject(t.Context(), testkit.ErrCause))
		}
		require.Equal(t, []int64{1, 2, 3, 1, 2, 3}, order)
	})
}

// Replay honors its filter, including the limit.
func TestQueue_Replay_Filter(t *testing.T) {
	_, q := deadQueue(t, 10)
	f := onePartition(0)
	f.Limit = 2
	dead, err := q.Replay(t.Context(), 3, time.Minute, f)
	require.NoError(t, err)
	require.Equal(t, []int64{2, 4}, idsOf(dead))
	dead, err = q.Replay(t.Context(), 3, time.Minute, &relay.DeadFilter{State: relay.DeadReplaying})
	require.NoError(t, err)
	require.Empty(t, dead, "their hold is not over")
}

// When a hold has expired, the next replay can take the dead letter, and the old holder cannot settle it.
func TestQueue_Replay_HoldOver(t *testing.T) {
	honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
		q := relay.New(db, nil).Queue("hooks", 2)
		insertDead(t, db, q, 1)
		first := replay(t, q, 1, time.Minute)
		time.Sleep(time.Minute)
		require.Empty(t, replay(t, q, 1, time.Minute), "it is held to its last millisecond")
		time.Sleep(time.Millisecond)
		require.ErrorIs(t, first[0].Resolve(t.Context()), honker.ErrClaimLost, "the hold is over, if it has no other holder yet")
		require.ErrorIs(t, first[0].Reject(t.Context(), nil), honker.ErrClaimLost)
		second, err := q.Replay(t.Context(), 1, time.Minute, &relay.DeadFilter{State: relay.DeadReplaying})
		require.NoError(t, err)
		require.Len(t, second, 1)
		require.Equal(t, 1, second[0].Attempt, "only Reject counts an attempt")
		require.ErrorIs(t, first[0].Resolve(t.Context()), honker.ErrClaimLost)
		require.NoError(t, second[0].Resolve(t.Context()))
	})
}

// Concurrent replays on two DBs for the same file never return the same dead letter.
func TestQueue_Replay_OnceEach(t *testing.T) {
	path := filepath.Join(t.TempDir(), "shared.db")
	const n = 400
	var wg sync.WaitGroup
	got := make([][]int64, 4)
	for i := range 2 {
		db := honkertest.OpenFile(t, path, nil)
		q := relay.New(db, nil).Queue("hooks", 2)
		if i == 0 {
			insertDead(t, db, q, n)
		}
		for j := range 2 {
			wg.Go(func() {
				for {
					dead, err := q.Replay(context.Background(), 7, time.Hour, nil)
					if !assert.NoError(t, err) || len(dead) == 0 {
						return
					}
					got[2*i+j] = append(got[2*i+j], idsOf(dead)...)
				}
			})
		}
	}
	wg.Wait()
	all := slices.Concat(got...)
	slices.Sort(all)
	require.Len(t, all, n)
	require.Len(t, slices.Compact(all), n)
}

// A requeued dead letter becomes the last message of its partition with a new sequence number. Held and
// settled dead letters are not requeued.
func TestQueue_Requeue_EndOfPartition(t *testing.T) {
	db, q := deadQueue(t, 8)
	_, err := q.Send(t.Context(), relay.Outgoing{Partition: 1, Payload: []byte("waits")})
	require.NoError(t, err)
	held := replay(t, q, 2, time.Hour) // 1, 2
	require.NoError(t, held[0].Resolve(t.Context()))
	_, err = q.Discard(t.Context(), 3)
	require.NoError(t, err)

	n, err := q.Requeue(t.Context(), 7, 5, 5, 4, 1, 2, 3, 99, -1)
	require.NoError(t, err)
	require.Equal(t, 3, n)
	require.Equal(t, []int64{1, 2, 3, 6, 8}, deadIDs(t, q, nil))
	rows, err := testkit.Rows(db.SQL(), testkit.ListMessages)
	require.NoError(t, err)
	require.Equal(t, []string{"9|hooks|1|application/json|waits", "10|hooks|0|application/json|letter 4",
		"11|hooks|1|application/json|letter 5", "12|hooks|1|application/json|letter 7"}, rows)
	info, err := q.Info(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 8+3, info.Partitions[1].Seq)

	n, err = q.Requeue(t.Context())
	require.NoError(t, err)
	require.Zero(t, n)
}

// A rejected message that is requeued while the relay runs is handled immediately, with a new sequence
// number.
func TestQueue_Requeue_Handled(t *testing.T) {
	db := honkertest.Open(t, nil)
	var sent []relay.Sent
	r := relay.New(db, &relay.Options{Observer: &relay.Observer{Sent: func(s relay.Sent) { sent = append(sent, s) }}})
	q := r.Queue("hooks", 2)
	var got seen
	var mended atomic.Bool
	q.Handle(func(_ context.Context, m *relay.Message) error {
		got.add(m)
		if string(m.Payload) == "1" && !mended.Load() {
			return relay.Reject(errDown)
		}
		return nil
	})
	start(t, r)
	sendN(t, q, 1, 3)
	drained(t, q)
	dead := deadIDs(t, q, nil)
	require.Len(t, dead, 1)
	for d := range q.Dead(t.Context(), nil) {
		require.Equal(t, "hooks/1/2", d.IdempotencyKey())
		require.Equal(t, errDown.Error(), d.LastError)
		require.Equal(t, 1, d.Attempt)
		require.WithinRange(t, d.DiedAt, d.CreatedAt, time.Now())
	}
	mended.Store(true)
	n, err := q.Requeue(t.Context(), dead...)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	drained(t, q)
	require.Equal(t, []string{"1/1/0", "1/2/0", "1/3/0", "1/4/0"}, got.seqs())
	require.Equal(t, []string{"0", "1", "2", "1"}, got.payloads())
	require.Len(t, sent, 2)
	require.Greater(t, sent[1].IDs[0], sent[0].IDs[2], "a new id")
	require.Empty(t, deadIDs(t, q, nil))
}

// Requeue is atomic: if an application trigger prevents a deletion, nothing is requeued.
func TestQueue_Requeue_Atomic(t *testing.T) {
	for _, trigger := range []string{testkit.RefuseDead, testkit.KeepDead} {
		db, q := deadQueue(t, 4)
		testkit.Exec(t, db, trigger)
		before := testkit.Dump(t, db.SQL())
		n, err := q.Requeue(t.Context(), 1, 2, 3, 4)
		require.Error(t, err)
		require.Zero(t, n)
		require.Equal(t, before, testkit.Dump(t, db.SQL()))
	}
}

// CleanupDead deletes dead letters that were settled long enough ago, but no pending ones.
func TestQueue_CleanupDead_SettledOnly(t *testing.T) {
	honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
		q := relay.New(db, nil).Queue("hooks", 2)
		insertDead(t, db, q, 6)
		held := replay(t, q, 3, 10*time.Hour) // 1, 2, 3
		require.NoError(t, held[0].Resolve(t.Context()))
		time.Sleep(time.Hour)
		n, err := q.Discard(t.Context(), 4, 4, 3, 1)
		require.NoError(t, err)
		require.Equal(t, 1, n, "one is held, one is settled")
		require.NoError(t, held[1].Resolve(t.Context()))

		cleanup := func(olderThan time.Duration) int {
			n, err := q.CleanupDead(t.Context(), olderThan)
			require.NoError(t, err)
			return n
		}
		require.Zero(t, cleanup(time.Hour+time.Millisecond))
		require.Equal(t, 1, cleanup(time.Hour))
		require.Equal(t, []int64{2, 3, 4, 5, 6}, deadIDs(t, q, nil))
		require.Equal(t, 2, cleanup(0))
		require.Equal(t, []int64{3, 5, 6}, deadIDs(t, q, nil))
		require.Zero(t, cleanup(0))
	})
}

// CleanupDead deletes many dead letters in chunks.
func TestQueue_CleanupDead_Many(t *testing.T) {
	const n = 20_000
	_, q := deadQueue(t, n)
	var some []int64
	for id := range int64(n) {
		if id%10 != 0 {
			some = append(some, id)
		}
	}
	_, err := q.Discard(t.Context(), some...)
	require.NoError(t, err)
	done, err := q.CleanupDead(t.Context(), 0)
	require.NoError(t, err)
	require.Equal(t, n*9/10, done)
	left, err := q.CountDead(t.Context(), nil)
	require.NoError(t, err)
	require.EqualValues(t, n/10, left)
}

// verbs returns a valid call to each operator method.
func verbs(q *relay.Queue) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"info":    func(ctx context.Context) error { _, err := q.Info(ctx); return err },
		"count":   func(ctx context.Context) error { _, err := q.CountDead(ctx, nil); return err },
		"dead":    func(ctx context.Context) error { return deadErr(q.Dead(ctx, nil)) },
		"replay":  func(ctx context.Context) error { _, err := q.Replay(ctx, 1, time.Minute, nil); return err },
		"requeue": func(ctx context.Context) error { _, err := q.Requeue(ctx, 1); return err },
		"discard": func(ctx context.Context) error { _, err := q.Discard(ctx, 1); return err },
		"cleanup": func(ctx context.Context) error { _, err := q.CleanupDead(ctx, 0); return err },
	}
}

func deadErr(seq func(func(*relay.DeadMessage, error) bool)) (failed error) {
	for _, err := range seq {
		failed = errors.Join(failed, err)
	}
	return failed
}

// All methods refuse invalid arguments and change nothing.
func TestQueue_Dead_BadInput(t *testing.T) {
	db, q := deadQueue(t, 3)
	d := replay(t, q, 1, time.Hour)[0]
	before := testkit.Dump(t, db.SQL())
	invalid := func(err error) {
		t.Helper()
		require.ErrorIs(t, err, honker.ErrInvalid)
	}
	replayErr := func(n int, hold time.Duration, f *relay.DeadFilter) error {
		_, err := q.Replay(t.Context(), n, hold, f)
		return err
	}
	invalid(replayErr(0, time.Minute, nil))
	invalid(replayErr(-1, time.Minute, nil))
	invalid(replayErr(1, 0, nil))
	invalid(replayErr(1, -time.Second, nil))
	invalid(replayErr(1, time.Minute, &relay.DeadFilter{State: relay.DeadResolved}))
	invalid(replayErr(1, time.Minute, &relay.DeadFilter{State: relay.DeadDiscarded}))
	for _, f := range []*relay.DeadFilter{{State: "dead"}, onePartition(-1), {Limit: -1}} {
		_, err := q.CountDead(t.Context(), f)
		invalid(err)
		invalid(deadErr(q.Dead(t.Context(), f)))
		invalid(replayErr(1, time.Minute, f))
	}
	_, err := q.CleanupDead(t.Context(), -1)
	invalid(err)

	r := relay.New(db, nil)
	for name, verb := range verbs(q) {
		invalid(verb(nil))
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, verb(ended), context.Canceled, name)
		invalid(verbs(r.Queue("", 2))[name](t.Context()))
		invalid(verbs(r.Queue("hooks", 3))[name](t.Context()))
		require.ErrorIs(t, verbs(r.Queue("hooks", 4))[name](t.Context()), relay.ErrPartitions, name)
		invalid(verbs(relay.New(db, &relay.Options{Family: "No"}).Queue("hooks", 2))[name](t.Context()))
	}
	var none context.Context
	invalid(d.Resolve(none))
	require.Equal(t, before, testkit.Dump(t, db.SQL()))
}

// With a ctx from DB.Tx, writes are refused and reads see the transaction.
func TestQueue_Dead_InTx(t *testing.T) {
	db, q := deadQueue(t, 3)
	d := replay(t, q, 1, time.Hour)[0]
	require.NoError(t, db.Tx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
		_, err := testkit.Rows(tx, testkit.DeleteDead)
		require.NoError(t, err)
		n, err := q.CountDead(ctx, nil)
		require.NoError(t, err)
		require.EqualValues(t, 1, n)
		for _, name := range []string{"replay", "requeue", "discard", "cleanup"} {
			require.ErrorIs(t, verbs(q)[name](ctx), honker.ErrInTx, name)
		}
		require.ErrorIs(t, d.Resolve(ctx), honker.ErrInTx)
		require.ErrorIs(t, d.Reject(ctx, nil), honker.ErrInTx)
		return nil
	}))
	require.NoError(t, d.Resolve(t.Context()))
}

// Reading a queue that was never used finds nothing and does not change the database.
func TestQueue_Dead_NoTables(t *testing.T) {
	db := honkertest.Open(t, nil)
	before := testkit.Dump(t, db.SQL())
	q := relay.New(db, nil).Queue("hooks", 2)
	for name, verb := range verbs(q) {
		require.NoError(t, verb(t.Context()), name)
	}
	require.Equal(t, before, testkit.Dump(t, db.SQL()))
	_, err := relay.New(db, nil).Queue("other", 1).Send(t.Context(), relay.Outgoing{})
	require.NoError(t, err)
	before = testkit.Dump(t, db.SQL())
	for name, verb := range verbs(q) {
		require.NoError(t, verb(t.Context()), "beside another queue: "+name)
	}
	require.Equal(t, before, testkit.Dump(t, db.SQL()))
}

// Queues and families do not see each other's dead letters.
func TestQueue_Dead_OthersUntouched(t *testing.T) {
	db, q := deadQueue(t, 4)
	require.NoError(t, replay(t, q, 1, time.Hour)[0].Resolve(t.Context()))
	before := testkit.Dump(t, db.SQL())
	family := relay.New(db, &relay.Options{Family: "billing"}).Queue("hooks", 2)
	for _, other := range []*relay.Queue{relay.New(db, nil).Queue("other", 2), family} {
		_, err := other.Send(t.Context(), relay.Outgoing{})
		require.NoError(t, err)
		require.Empty(t, deadIDs(t, other, nil))
		require.Empty(t, replay(t, other, 9, time.Minute))
		for name, verb := range verbs(other) {
			require.NoError(t, verb(t.Context()), name)
		}
	}
	after := strings.Join(testkit.Dump(t, db.SQL()), "\n")
	for _, line := range before {
		if strings.Contains(line, "relay_dead") {
			require.Contains(t, after, line)
		}
	}
	require.Equal(t, []int64{1, 2, 3, 4}, deadIDs(t, q, nil))
}
