package honker_test

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"math"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
)

// Statements with which other bindings save and read an offset.
const (
	bindingSave = `INSERT INTO _honker_stream_consumers (name, topic, offset) VALUES (?1, ?2, ?3)
ON CONFLICT(name, topic) DO UPDATE SET offset = excluded.offset WHERE excluded.offset > _honker_stream_consumers.offset`
	bindingOffset = `SELECT offset FROM _honker_stream_consumers WHERE name = ?1 AND topic = ?2`
)

// A saved offset never decreases.
func TestConsumer_Save_NeverBack(t *testing.T) {
	testkit.FileOnly(t)
	t.Parallel()
	ctx, db, s := testkit.NewStream[int](t, "orders")
	for name, save := range map[string]func(offset int64) (bool, error){
		"SaveOffset": func(offset int64) (bool, error) { return s.SaveOffset(ctx, "SaveOffset", offset) },
		"SaveOffsetTx": func(offset int64) (saved bool, err error) {
			err = db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
				saved, err = s.SaveOffsetTx(ctx, tx, "SaveOffsetTx", offset)
				return err
			})
			return saved, err
		},
	} {
		require.Zero(t, testkit.SavedOffset(t, s, name))
		for _, c := range []struct {
			offset int64
			saved  bool
			stands int64
		}{
			{0, true, 0}, {0, false, 0}, {7, true, 7}, {7, false, 7}, {3, false, 7}, {0, false, 7}, {8, true, 8},
			{math.MaxInt64, true, math.MaxInt64}, {9, false, math.MaxInt64},
		} {
			saved, err := save(c.offset)
			require.NoError(t, err)
			require.Equal(t, c.saved, saved, "%s %d", name, c.offset)
			require.Equal(t, c.stands, testkit.SavedOffset(t, s, name))
			require.Equal(t, c.stands, testkit.QueryInt(t, db.SQL(), bindingOffset, name, "orders"))
		}
	}
}

// An offset saved in a transaction is rolled back with it.
func TestConsumer_SaveTx_Rollback(t *testing.T) {
	testkit.FileOnly(t)
	t.Parallel()
	ctx, db, s := testkit.NewStream[int](t, "orders")
	for _, end := range []error{testkit.ErrCause, nil} {
		require.Equal(t, end, db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			saved, err := s.SaveOffsetTx(ctx, tx, "c", 5)
			require.NoError(t, err)
			require.True(t, saved)
			require.Zero(t, testkit.SavedOffset(t, s, "c"), "not committed yet")
			return end
		}))
		infos, err := s.Consumers(ctx)
		require.NoError(t, err)
		if end != nil {
			require.Empty(t, infos)
			require.Zero(t, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honkerx_consumers`))
		}
	}
	require.EqualValues(t, 5, testkit.SavedOffset(t, s, "c"))
}

// The highest of many saves wins.
func TestConsumer_Save_HighestWins(t *testing.T) {
	t.Parallel()
	ctx, _, s := testkit.NewStream[int](t, "orders")
	var saves atomic.Int64
	ended := make(chan error, 8)
	for g := range int64(cap(ended)) {
		go func() {
			var err error
			for i := int64(0); i < 50 && err == nil; i++ {
				var saved bool
				if saved, err = s.SaveOffset(ctx, "c", 1+(i*37+g*11)%400); saved {
					saves.Add(1)
				}
			}
			ended <- err
		}()
	}
	for range cap(ended) {
		require.NoError(t, <-ended)
	}
	top := int64(0)
	for g := range int64(8) {
		for i := range int64(50) {
			top = max(top, 1+(i*37+g*11)%400)
		}
	}
	require.Equal(t, top, testkit.SavedOffset(t, s, "c"))
	require.LessOrEqual(t, saves.Load(), top)
}

// Offsets are shared with other bindings.
func TestConsumer_Foreign(t *testing.T) {
	testkit.FileOnly(t)
	t.Parallel()
	db, b := testkit.OpenWithBinding(t)
	s := honker.NewStream[int](db, "orders", nil)
	offsets := testkit.PublishUpTo(t, s, 10)
	require.EqualValues(t, 1, b.Change(bindingSave, "c", "orders", offsets[3]))
	require.Equal(t, offsets[3], testkit.SavedOffset(t, s, "c"))
	require.Equal(t, []int{4, 5}, testkit.EventData(testkit.Take(t, s, "c", nil, 2)))
	require.Equal(t, offsets[5], testkit.QueryInt(t, b.Pool, bindingOffset, "c", "orders"))
	require.Zero(t, b.Change(bindingSave, "c", "orders", offsets[2]))
	require.EqualValues(t, 1, b.Change(bindingSave, "c", "orders", offsets[7]))
	require.Equal(t, []int{8}, testkit.EventData(testkit.Take(t, s, "c", nil, 1)))
}

// Seek moves a consumer forward and backward.
func TestConsumer_Seek_Back(t *testing.T) {
	testkit.FileOnly(t)
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		ctx, s := context.Background(), honker.NewStream[int](db, "orders", nil)
		began := time.Now().Add(-time.Hour)
		offsets := testkit.PublishUpTo(t, s, 6)
		noise(t, db, "other", "k", 10)
		ages(t, db, began, offsets, 0, 10, 20, 30, 40, 50)
		require.Equal(t, []int{0, 1, 2, 3, 4, 5}, drained(t, s, "c", nil))
		for _, c := range []struct {
			to     honker.From
			stands int64
			want   []int
		}{
			{honker.Beginning, 0, []int{0, 1, 2, 3, 4, 5}},
			{honker.Offset(offsets[2]), offsets[2], []int{3, 4, 5}},
			{honker.Offset(0), 0, []int{0, 1, 2, 3, 4, 5}},
			{honker.Since(began.Add(15 * time.Second)), offsets[1], []int{2, 3, 4, 5}},
			{honker.Since(began.Add(time.Hour)), offsets[5], nil},
			{honker.Beginning, 0, []int{0, 1, 2, 3, 4, 5}},
			{honker.End, offsets[5], nil},
			{honker.Offset(1000), 1000, nil},
			{honker.Since(time.Time{}), 0, []int{0, 1, 2, 3, 4, 5}},
		} {
			require.NoError(t, s.Seek(ctx, "c", c.to))
			require.Equal(t, c.stands, testkit.SavedOffset(t, s, "c"))
			require.Equal(t, c.want, drained(t, s, "c", nil))
		}
		require.NoError(t, s.Seek(ctx, "c", honker.Offset(offsets[4])))
		require.Equal(t, []int{5}, testkit.EventData(testkit.Take(t, s, "c", nil, 1)))
	})
}

// Seek returns ErrNotFound for an unknown consumer.
func TestConsumer_Seek_NotFound(t *testing.T) {
	testkit.FileOnly(t)
	t.Parallel()
	ctx, db, s := testkit.NewStream[int](t, "orders")
	testkit.Publish(t, s, 1)
	_, err := honker.NewStream[int](db, "other", nil).SaveOffset(ctx, "c", 1)
	require.NoError(t, err)
	for _, to := range []honker.From{honker.Beginning, honker.End, honker.Offset(1), honker.Since(time.Now())} {
		err := s.Seek(ctx, "c", to)
		require.ErrorIs(t, err, honker.ErrNotFound)
		require.ErrorContains(t, err, `honker: seek "orders": consumer "c"`)
	}
	require.EqualValues(t, 1, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_stream_consumers`), "none was made")
}

// Seek on a pattern uses the pattern's offsets.
func TestConsumer_Seek_Pattern(t *testing.T) {
	testkit.FileOnly(t)
	t.Parallel()
	ctx, db, s := testkit.NewStream[int](t, "orders:a")
	pattern := honker.NewStream[int](db, "orders:*", nil)
	first := testkit.Publish(t, s, 1)
	noise(t, db, "other", "k", 10)
	testkit.Exec(t, db, `UPDATE _honker_stream SET created_at = created_at - 100`)
	second := testkit.Publish(t, honker.NewStream[int](db, "orders:b", nil), 2)
	noise(t, db, "zebra", "k", 10)
	_, err := pattern.SaveOffset(ctx, "c", 0)
	require.NoError(t, err)
	for want, to := range map[int64]honker.From{
		second: honker.End, 0: honker.Beginning, first: honker.Offset(first), second - 1: honker.Since(time.Now().Add(-50 * time.Second)),
	} {
		require.NoError(t, pattern.Seek(ctx, "c", to))
		require.Equal(t, want, testkit.SavedOffset(t, pattern, "c"))
	}
	require.Zero(t, testkit.SavedOffset(t, s, "c"), "a consumer of the topic is another one")
}

// Consumers lists each consumer with its lag.
func TestConsumer_List_Lag(t *testing.T) {
	testkit.FileOnly(t)
	t.Parallel()
	ctx, db, s := testkit.NewStream[int](t, "orders")
	other := honker.NewStream[int](db, "other", nil)
	infos, err := s.Consumers(ctx)
	require.NoError(t, err)
	require.Empty(t, infos)
	offsets := testkit.PublishUpTo(t, s, 10)
	began := time.Now().Truncate(time.Millisecond)
	testkit.Take(t, s, "fast", nil, 10)
	testkit.Take(t, s, "slow", nil, 4)
	testkit.Take(t, s, "never acked", strict, 1)
	testkit.Take(t, other, "elsewhere", &honker.SubscribeOptions{From: honker.Offset(3)}, emitLater(t, other))
	noise(t, db, "other", "k", 500) // lag stays 0 after draining, even though other streams grow
	testkit.Exec(t, db, `INSERT INTO _honker_stream_consumers (name, topic, offset) VALUES ('a foreign one', 'orders', ?)`, offsets[7])
	testkit.Exec(t, db, `INSERT INTO _honker_stream_consumers (name, topic, offset) VALUES ('odd', 'orders', 'many'), ('real', 'orders', 2.5)`)

	infos, err = s.Consumers(ctx)
	require.NoError(t, err)
	for i := range infos {
		name := infos[i].Name
		ours := name == "fast" || name == "slow"
		if ours || name == "never acked" {
			require.WithinRange(t, infos[i].CreatedAt, began, time.Now(), name)
		} else {
			require.Zero(t, infos[i].CreatedAt, name)
		}
		if ours {
			require.WithinRange(t, infos[i].LastAck, began, time.Now(), name)
		} else {
			require.Zero(t, infos[i].LastAck, name)
		}
		infos[i].CreatedAt, infos[i].LastAck = time.Time{}, time.Time{}
	}
	require.Equal(t, []honker.ConsumerInfo{
		{Name: "a foreign one", Topic: "orders", Offset: offsets[7], Lag: 2},
		{Name: "fast", Topic: "orders", Offset: offsets[9]},
		{Name: "never acked", Topic: "orders", Lag: 10},
		{Name: "odd", Topic: "orders", Lag: 10},
		{Name: "real", Topic: "orders", Offset: 2, Lag: 8},
		{Name: "slow", Topic: "orders", Offset: offsets[3], Lag: 6},
	}, infos)
}

// emitLater publishes a single event and returns the number of events to expect.
func emitLater(t testing.TB, s *honker.Stream[int]) int {
	t.Helper()
	testkit.Publish(t, s, 1)
	return 1
}

// LastAck is the time of the last save.
func TestConsumer_LastAck(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		s := honker.NewStream[int](db, "orders", nil)
		info := func() honker.ConsumerInfo {
			infos, err := s.Consumers(context.Background())
			require.NoError(t, err)
			require.Len(t, infos, 1)
			return infos[0]
		}
		began := time.Now()
		save := func(offset int64, want bool) {
			saved, err := s.SaveOffset(context.Background(), "c", offset)
			require.NoError(t, err)
			require.Equal(t, want, saved)
		}
		save(1, true)
		require.True(t, info().CreatedAt.Equal(began) && info().LastAck.Equal(began))
		time.Sleep(time.Hour)
		save(1, false)
		require.True(t, info().LastAck.Equal(began), "nothing was saved")
		save(2, true)
		require.True(t, info().CreatedAt.Equal(began))
		require.True(t, info().LastAck.Equal(time.Now()))
		hour := time.Now()
		time.Sleep(time.Hour)
		require.NoError(t, s.Seek(context.Background(), "c", honker.Beginning))
		require.True(t, info().LastAck.Equal(hour), "a seek acks nothing")
	})
}

// A deleted consumer loses its saved offset.
func TestConsumer_Delete(t *testing.T) {
	testkit.FileOnly(t)
	t.Parallel()
	ctx, db, s := testkit.NewStream[int](t, "orders")
	other := honker.NewStream[int](db, "other", nil)
	testkit.PublishUpTo(t, s, 5)
	testkit.Take(t, s, "c", nil, 3)
	testkit.Take(t, s, "d", nil, 3)
	_, err := other.SaveOffset(ctx, "c", 1)
	require.NoError(t, err)
	testkit.Exec(t, db, `INSERT INTO _honker_stream_consumers (name, topic, offset) VALUES ('foreign', 'orders', 1)`)
	for consumer, want := range map[string]bool{"c": true, "foreign": true, "nobody": false} {
		deleted, err := s.DeleteConsumer(ctx, consumer)
		require.NoError(t, err)
		require.Equal(t, want, deleted, consumer)
		require.Zero(t, testkit.SavedOffset(t, s, consumer))
		deleted, err = s.DeleteConsumer(ctx, consumer)
		require.NoError(t, err)
		require.False(t, deleted, "again")
		require.ErrorIs(t, s.Seek(ctx, consumer, honker.End), honker.ErrNotFound)
	}
	require.EqualValues(t, 1, testkit.SavedOffset(t, other, "c"))
	require.EqualValues(t, 3, testkit.SavedOffset(t, s, "d"))
	for _, table := range []string{"_honker_stream_consumers", "_honkerx_consumers"} {
		require.EqualValues(t, 2, testkit.QueryInt(t, db.SQL(), fmt.Sprintf(`SELECT count(*) FROM %s`, table)), table)
	}
	require.Equal(t, 0, testkit.Take(t, s, "c", nil, 1)[0].Data, "it begins anew")
}

// Head returns the last offset of a topic or pattern.
func TestStream_Head(t *testing.T) {
	t.Parallel()
	ctx, db, s := testkit.NewStream[int](t, "orders:a")
	heads := func() (heads []int64) {
		for _, name := range []string{"orders:a", "orders:b", "orders:*", "*"} {
			head, err := honker.NewStream[int](db, name, nil).Head(ctx)
			require.NoError(t, err)
			heads = append(heads, head)
		}
		return heads
	}
	require.Equal(t, []int64{0, 0, 0, 0}, heads())
	a := testkit.Publish(t, s, 1)
	require.Equal(t, []int64{a, 0, a, a}, heads())
	b := testkit.Publish(t, honker.NewStream[int](db, "orders:b", nil), 1)
	last := noise(t, db, "zebra", "k", 100)
	require.Equal(t, []int64{a, b, b, last}, heads())
}

// Consumers and groups with an unreadable filter are omitted from the lists and logged. The other entries are still
// listed.
func TestStream_Lists_UnreadableFilter(t *testing.T) {
	testkit.FileOnly(t)
	t.Parallel()
	var log testkit.Log
	ctx := testkit.Context(t, testkit.Timeout)
	db := honkertest.Open(t, &honker.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	s := honker.NewStream[int](db, "orders", nil)
	testkit.Publish(t, s, 1)
	for _, name := range []string{"good", "bad"} {
		_, err := s.SaveOffset(ctx, name, 1)
		require.NoError(t, err)
		_, err = s.Group(name, nil).Join(ctx, "m")
		require.NoError(t, err)
	}
	testkit.ExecAll(t, db.SQL(), `UPDATE _honkerx_consumers SET filter = '{' WHERE name = 'bad'`, `UPDATE _honkerx_groups SET filter = x'00', turn = 'odd' WHERE name = 'bad'`)
	consumers, err := s.Consumers(ctx)
	require.NoError(t, err)
	require.Len(t, consumers, 1)
	require.Equal(t, "good", consumers[0].Name)
	groups, err := s.Groups(ctx)
	require.NoError(t, err)
	require.Len(t, groups, 1)
	require.Equal(t, "good", groups[0].Name)
	require.Equal(t, 1, log.Times(`unreadable consumer omitted from the list" topic=orders consumer=bad`))
	require.Equal(t, 1, log.Times(`unreadable group omitted from the list" topic=orders group=bad`))
	_, err = s.Group("bad", nil).Join(ctx, "m2")
	require.ErrorContains(t, err, "stored filter")
	gone, err := s.Group("bad", nil).Delete(ctx)
	require.NoError(t, err)
	require.True(t, gone)
}
