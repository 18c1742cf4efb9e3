package honker_test

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
)

// What a bus of events must do, as far as no other test here shows the same.
// docs/acceptance.md has the whole list.

func TestAckedEventIsNotSeenAgainWhenTheFileIsOpenedAnew(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file.db")
	for run := range 4 {
		db, err := honker.Open(context.Background(), path, nil)
		require.NoError(t, err)
		s := honker.NewStream[int](db, "orders", nil)
		if run == 0 {
			emitUpTo(t, s, 10)
			require.Zero(t, offsetOf(t, s, "c"), "nobody has acked anything")
		}
		events := take(t, s, "c", strict, 3)
		require.Equal(t, []int{2 * run, 2*run + 1, 2*run + 2}, dataOf(events))
		require.NoError(t, events[1].Ack(bounded(t, patient))) // not the third
		require.NoError(t, db.Close())
	}
}

// Whoever asks again and again from where he was misses nothing and sees nothing twice:
// nothing comes up below an offset that was seen.
func TestLoopOfReadsSeesEachEventOnce(t *testing.T) {
	t.Parallel()
	const publishers, each = 4, 100
	ctx, db, s := streamOf[int](t, "orders")
	published := make(chan error, publishers)
	for p := range publishers {
		go func() {
			var err error
			for i := 0; i < each && err == nil; i++ {
				if i%2 == 0 {
					_, err = s.Publish(ctx, p*each+i)
				} else {
					err = db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
						_, err := s.PublishTx(ctx, tx, p*each+i)
						return err
					})
				}
			}
			published <- err
		}()
	}
	seen, last := map[int]bool{}, int64(0)
	eventually(t, patient, "all are seen", func() bool {
		for e, err := range s.Read(ctx, last) {
			require.NoError(t, err)
			require.Greater(t, e.Offset, last)
			require.False(t, seen[e.Data], "event %d came twice", e.Data)
			seen[e.Data], last = true, e.Offset
		}
		return len(seen) == publishers*each
	})
	for range publishers {
		require.NoError(t, <-published)
	}
}

// Without a notice of the system, what another connection publishes is seen when
// PollInterval has passed, and not before.
func TestPollingSubscriberHearsOthersAtItsNextLook(t *testing.T) {
	t.Parallel()
	const poll = 10 * time.Second
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "file.db")
		db := honkertest.OpenFile(t, path, &honker.Options{NoFileNotices: true, PollInterval: poll})
		other := plain(t, path)
		s := honker.NewStream[int](db, "orders", nil)
		heard := make(chan time.Time, 2)
		stop := background(t, func(ctx context.Context) error {
			for _, err := range s.Subscribe(ctx, "c", nil) {
				if err != nil {
					return err
				}
				heard <- time.Now()
			}
			return nil
		})
		synctest.Wait() // it has looked
		began := time.Now()
		for n := range 2 {
			time.Sleep(3 * time.Second)
			perform(t, other, `INSERT INTO _honker_stream (topic, payload) VALUES ('orders', '1')`)
			synctest.Wait()
			require.Empty(t, heard, "it has not looked again")
			require.Equal(t, time.Duration(n+1)*poll, (<-heard).Sub(began))
		}
		emit(t, s, 2)
		require.Equal(t, 2*poll, (<-heard).Sub(began), "of this process it hears at once")
		require.ErrorIs(t, stop(), context.Canceled)
	})
}

// One commit is for all who wait, on whatever topic and however they wait.
func TestOneCommitWakesTheSubscribersOfAllTopics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := honkertest.Open(t, &honker.Options{NoFileNotices: true, PollInterval: time.Hour})
		ctx := bounded(t, time.Minute)
		const topics = 10
		got := make(chan int, 3*topics)
		for i := range topics {
			s := honker.NewStream[int](db, fmt.Sprint("topic", i), nil)
			m := enrol(t, s.Group("g", nil), "a")
			go func() { got <- take(t, s, "c", nil, 1)[0].Data }()
			go func() {
				for e, err := range s.Tail(ctx, honker.Beginning, nil) {
					require.NoError(t, err)
					got <- e.Data
					return
				}
			}()
			go func() {
				for d, err := range m.All(ctx) {
					require.NoError(t, err)
					require.NoError(t, d.Ack(ctx))
					got <- d.Data
					return
				}
			}()
		}
		synctest.Wait() // all sleep
		began := time.Now()
		require.NoError(t, db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			for i := range topics {
				_, err := honker.NewStream[int](db, fmt.Sprint("topic", i), nil).PublishTx(ctx, tx, i)
				require.NoError(t, err)
			}
			return nil
		}))
		count := map[int]int{}
		for range cap(got) {
			count[<-got]++
		}
		for i := range topics {
			require.Equal(t, 3, count[i], "of topic %d", i)
		}
		require.Less(t, time.Since(began), time.Second)
	})
}

func TestOneMemberTakesTwentyEventsInOrder(t *testing.T) {
	t.Parallel()
	g := stocked(t, honkertest.Open(t, nil), 20).Group("g", nil)
	m := enrol(t, g, "a")
	for n := 1; n <= 20; n++ {
		ds := given(t, m, 1)
		require.Equal(t, []int{n}, contentsOf(ds))
		require.Equal(t, 1, ds[0].Attempts)
		ackEach(t, ds)
		require.EqualValues(t, n, infoOf(t, g).LowWater)
	}
	require.Empty(t, given(t, m, 1))
	require.Equal(t, honker.GroupInfo{Name: "g", Topic: "orders", Cursor: 20, LowWater: 20, Members: []string{"a"}}, infoOf(t, g))
}
