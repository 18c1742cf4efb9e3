package sqlite

import (
	"context"
	"testing"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/stretchr/testify/require"
)

// An op that panics, for example in the Error method of a caller's error, must not leave the
// transaction open or the gate held.
func TestCommitter_PanicInOp(t *testing.T) {
	s, stored := newScene(t)
	s.connector.cfg.BusyTimeout, s.limit = time.Second, time.Second
	s.hold(t)
	survive := func(o testOp) <-chan any {
		return later(func() (p any) {
			defer func() {
				if r := recover(); r != nil {
					p = r
				}
			}()
			if err := s.Do(context.Background(), o); err != nil {
				return err
			}
			return nil
		})
	}
	first := survive(multi(insert(0)))
	eventually(t, "it waits", func() bool { return s.queued() == 1 })
	second := survive(testOp{func(context.Context, row.Querier) error { panic("oh") }, false})
	eventually(t, "it waits", func() bool { return s.queued() == 2 })
	third := survive(insert(2))
	eventually(t, "it waits", func() bool { return s.queued() == 3 })
	s.connector.gate.leave()
	for name, end := range map[string]<-chan any{"first": first, "second": second, "third": third} {
		got := ends(t, "op", end)
		if name == "second" {
			require.NotNil(t, got, "the op that panicked was not done")
		} else {
			require.Nil(t, got, name)
		}
	}
	require.Equal(t, []int64{0, 2}, stored())
	require.True(t, free(s.connector))
}

// A ROLLBACK by one of the application's triggers ends the batch's transaction. The batch fails as a whole: later ops
// must not be committed separately and reported as failed.
func TestCommitter_RollbackWithin(t *testing.T) {
	for name, ours := range map[string]bool{"on our connection": true, "on a foreign pool": false} {
		t.Run(name, func(t *testing.T) {
			path := file(t)
			c, pool := newPool(t, path, Config{})
			perform(t, pool, `CREATE TRIGGER no BEFORE INSERT ON t WHEN NEW.v = 13 BEGIN SELECT RAISE(ROLLBACK, 'no'); END`)
			source := OwnPool(pool)
			if !ours {
				source = ForeignPool(foreign(t, path))
			}
			s := &scene{NewCommitter(source, patient), c}
			defer s.Close()
			s.bound = patient // keep all ops in a single batch, even on a slow machine
			started, goOn := make(chan bool), make(chan bool)
			wait := testOp{func(context.Context, row.Querier) error { close(started); <-goOn; return nil }, false}
			outcomes := []<-chan error{later(func() error { return s.Do(context.Background(), multi(insert(0), wait)) })}
			<-started
			for _, v := range []int{1, 13, 2, 3} {
				outcomes = append(outcomes, s.add(t, context.Background(), insert(v)))
			}
			close(goOn)
			for v, outcome := range outcomes {
				require.Error(t, ends(t, "op", outcome), "op %d", v)
			}
			require.Empty(t, values(t, pool), "an error was returned for each of them")
		})
	}
}

// If all of the pool's connections are in use, the caller gets ErrBusy instead of an error about a deadline it didn't
// set.
func TestCommitter_NoConnection(t *testing.T) {
	path := file(t)
	newPool(t, path, Config{})
	pool := foreign(t, path)
	pool.SetMaxOpenConns(1)
	s := NewCommitter(ForeignPool(pool), 50*time.Millisecond)
	conn := borrow(t, pool)
	require.ErrorIs(t, s.Do(context.Background(), insert(1)), engine.ErrBusy)
	require.NoError(t, conn.Close())
	require.NoError(t, s.Do(context.Background(), insert(1)))
	require.NoError(t, s.Close())
}

// A batch contains at least the leader's op, even if the process is preempted before the op for longer than a batch's
// time limit. An op that didn't run must not be answered.
func TestCommitter_LateStart(t *testing.T) {
	s, stored := newScene(t)
	s.hold(t)
	s.bound = -1 // the time limit has passed when the batch begins
	outcomes := s.pile(t, multi(insert(0)), multi(insert(1)), insert(2))
	s.connector.gate.leave()
	for _, outcome := range outcomes {
		require.NoError(t, ends(t, "op", outcome))
	}
	require.Equal(t, []int64{0, 1, 2}, stored())
}

// An op fails on a full disk, and the next op succeeds once there is space.
func TestCommitter_DiskFull(t *testing.T) {
	s, stored := newScene(t)
	limit := func(pages int) {
		require.NoError(t, s.Do(context.Background(), testOp{func(ctx context.Context, q row.Querier) error {
			_, err := q.ExecContext(ctx, "PRAGMA max_page_count = "+[]string{"1", "1073741823"}[pages])
			return err
		}, true}))
	}
	big := testOp{func(ctx context.Context, q row.Querier) error {
		_, err := q.ExecContext(ctx, `INSERT INTO t (v) VALUES ('x' || hex(zeroblob(100000)))`)
		return err
	}, true}
	limit(0)
	s.hold(t)
	outcomes := s.pile(t, multi(insert(1)), big, insert(2))
	s.connector.gate.leave()
	for _, outcome := range outcomes {
		err := ends(t, "op", outcome)
		require.EqualValues(t, codeFull, Code(err), "%v", err)
	}
	require.Empty(t, stored())
	limit(1)
	require.NoError(t, s.Do(context.Background(), insert(3)))
	require.Equal(t, []int64{3}, stored())
}
