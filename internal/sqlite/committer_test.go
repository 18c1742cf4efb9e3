package sqlite

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/wake"
	"github.com/stretchr/testify/require"
)

// testOp is an op made of a function.
type testOp struct {
	run    func(ctx context.Context, q row.Querier) error
	single bool
}

func (o testOp) Run(ctx context.Context, q row.Querier, _ time.Time) error { return o.run(ctx, q) }
func (o testOp) Single() bool                                              { return o.single }

func insert(v int) testOp {
	return testOp{func(ctx context.Context, q row.Querier) error {
		_, err := q.ExecContext(ctx, `INSERT INTO t (v) VALUES (?)`, v)
		return err
	}, true}
}

// multi combines ops into a single op.
func multi(ops ...testOp) testOp {
	return testOp{func(ctx context.Context, q row.Querier) error {
		for _, o := range ops {
			if err := o.run(ctx, q); err != nil {
				return err
			}
		}
		return nil
	}, false}
}

func failing(err error) testOp {
	return testOp{func(context.Context, row.Querier) error { return err }, false}
}

var errOp = errors.New("the op does not like it")

// scene is a committer with a gate that the test can hold, so that ops pile up.
type scene struct {
	*Committer
	connector *Connector
}

func newScene(t *testing.T) (*scene, func() []int64) {
	t.Helper()
	c, pool := newPool(t, file(t), Config{})
	s := &scene{NewCommitter(OwnPool(pool), c.cfg.BusyTimeout), c}
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoError(t, s.Do(context.Background(), multi())) // it has its connection now
	return s, func() []int64 { return values(t, pool) }
}

func (s *scene) queued() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.waiting)
}

// pile starts ops in order, and returns once all of them are waiting. The first op is the leader's and waits at the
// gate.
func (s *scene) pile(t *testing.T, ops ...testOp) (outcomes []<-chan error) {
	t.Helper()
	for _, o := range ops {
		outcomes = append(outcomes, s.add(t, context.Background(), o))
	}
	return outcomes
}

func (s *scene) add(t *testing.T, ctx context.Context, o testOp) <-chan error {
	t.Helper()
	before := s.queued()
	outcome := later(func() error { return s.Do(ctx, o) })
	eventually(t, "the op waits", func() bool { return s.queued() == before+1 })
	return outcome
}

// hold holds the gate, so that ops wait.
func (s *scene) hold(t *testing.T) {
	t.Helper()
	require.True(t, s.connector.gate.tryEnter())
}

// Data held by an op, such as rows it has read, can be freed once the op is answered.
func TestCommitter_Answered_OpIsFree(t *testing.T) {
	type page [1 << 10]byte
	reading := func(single bool) (testOp, weak.Pointer[page]) {
		read := new(page)
		return testOp{func(context.Context, row.Querier) error { read[0]++; return nil }, single}, weak.Make(read)
	}
	s, _ := newScene(t)
	alone, rows := reading(true)
	require.NoError(t, s.Do(context.Background(), alone))
	runtime.GC()
	require.True(t, rows.Value() == nil, "of an op alone")

	s.hold(t)
	first, rowsOfFirst := reading(false)
	second, rowsOfSecond := reading(false)
	outcomes := s.pile(t, first, second)
	s.connector.gate.leave()
	for _, outcome := range outcomes {
		require.NoError(t, ends(t, "op", outcome))
	}
	runtime.GC()
	require.True(t, rowsOfFirst.Value() == nil, "of the first op of a batch")
	require.True(t, rowsOfSecond.Value() == nil, "of the second")
}

// A single commit contains all waiting ops.
func TestCommitter_OneCommitForAll(t *testing.T) {
	s, stored := newScene(t)
	s.hold(t)
	ops := []testOp{multi(insert(0))}
	for i := 1; i < 10; i++ {
		ops = append(ops, insert(i))
	}
	outcomes := s.pile(t, ops...)
	before := s.connector.Commits()
	s.connector.gate.leave()
	for _, outcome := range outcomes {
		require.NoError(t, ends(t, "op", outcome))
	}
	require.EqualValues(t, 1, s.connector.Commits()-before)
	require.Len(t, stored(), 10)
}

// Ops run in the order in which they arrive.
func TestCommitter_Order(t *testing.T) {
	s, _ := newScene(t)
	s.hold(t)
	var order []int
	var ops []testOp
	for i := range 20 {
		ops = append(ops, multi(testOp{func(context.Context, row.Querier) error {
			order = append(order, i) // ops must not run concurrently, or the race detector reports it
			return nil
		}, false}))
	}
	outcomes := s.pile(t, ops...)
	s.connector.gate.leave()
	for _, outcome := range outcomes {
		require.NoError(t, ends(t, "op", outcome))
	}
	for i, got := range order {
		require.Equal(t, i, got)
	}
	require.Len(t, order, 20)
}

// A failing op is undone without affecting the others.
func TestCommitter_FailedOpUndone(t *testing.T) {
	halfway := multi(insert(90), insert(91), failing(errOp))
	duplicate := insert(0) // a constraint error after the first insert
	for name, c := range map[string]struct {
		ops    []testOp
		fail   map[int]error
		stored []int64
	}{
		"the first":      {[]testOp{halfway, insert(1), multi(insert(2))}, map[int]error{0: errOp}, []int64{1, 2}},
		"in the middle":  {[]testOp{multi(insert(0)), halfway, insert(2)}, map[int]error{1: errOp}, []int64{0, 2}},
		"the last":       {[]testOp{multi(insert(0)), insert(1), halfway}, map[int]error{2: errOp}, []int64{0, 1}},
		"one statement":  {[]testOp{multi(insert(0)), duplicate, insert(2)}, map[int]error{1: nil}, []int64{0, 2}},
		"several":        {[]testOp{halfway, duplicate, halfway, duplicate, insert(3)}, map[int]error{0: errOp, 2: errOp, 3: nil}, []int64{0, 3}},
		"second of many": {[]testOp{multi(insert(0)), multi(insert(7), duplicate), multi(insert(7))}, map[int]error{1: nil}, []int64{0, 7}},
		"all":            {[]testOp{halfway, halfway}, map[int]error{0: errOp, 1: errOp}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s, stored := newScene(t)
			s.hold(t)
			outcomes := s.pile(t, c.ops...)
			s.connector.gate.leave()
			for i, outcome := range outcomes {
				err := ends(t, "op", outcome)
				want, fails := c.fail[i]
				switch {
				case !fails:
					require.NoError(t, err, "op %d", i)
				case want != nil:
					require.ErrorIs(t, err, want, "op %d", i)
				default:
					require.Error(t, err, "op %d", i)
				}
			}
			require.Equal(t, c.stored, stored())
			require.True(t, free(s.connector))
		})
	}
}

// coded is an error with a result code, like the errors of the engine.
type coded int

func (c coded) Error() string { return "a bad day" }
func (c coded) Code() int     { return int(c) }

// A fatal error fails the whole batch.
func TestCommitter_FatalFailure(t *testing.T) {
	for name, fatal := range map[string]error{"disk full": coded(codeFull), "disk error": coded(codeIOErr | 3<<8), "interrupted": coded(codeInterrupt)} {
		t.Run(name, func(t *testing.T) {
			s, stored := newScene(t)
			s.hold(t)
			single := failing(fatal)
			single.single = true
			outcomes := s.pile(t, multi(insert(0)), insert(1), single, insert(2))
			s.connector.gate.leave()
			for _, outcome := range outcomes {
				require.ErrorIs(t, ends(t, "op", outcome), fatal)
			}
			require.Empty(t, stored())
			require.True(t, free(s.connector))
			require.NoError(t, s.Do(context.Background(), insert(3)), "the next has a sound connection")
			require.Equal(t, []int64{3}, stored())
		})
	}
}

// A ctx that ends before the op has started withdraws the op.
func TestCommitter_Ctx_BeforeStart(t *testing.T) {
	s, stored := newScene(t)
	s.hold(t)
	first := s.add(t, context.Background(), multi(insert(0)))
	ctx, cancel := context.WithCancel(context.Background())
	second := s.add(t, ctx, insert(1))
	third := s.add(t, context.Background(), insert(2))
	cancel()
	require.ErrorIs(t, ends(t, "the op with the ended ctx", second), context.Canceled)
	s.connector.gate.leave()
	require.NoError(t, ends(t, "op", first))
	require.NoError(t, ends(t, "op", third))
	require.Equal(t, []int64{0, 2}, stored())
	require.ErrorIs(t, s.Do(ctx, insert(3)), context.Canceled)
}

func TestCommitter_LeaderCtxEnds(t *testing.T) {
	for name, op := range map[string]testOp{"alone": insert(0), "in a transaction": multi(insert(0))} {
		t.Run(name, func(t *testing.T) {
			s, stored := newScene(t)
			s.hold(t)
			ctx, cancel := context.WithCancel(context.Background())
			// A leader without other ops leaves the queue while it waits at the gate.
			leader := later(func() error { return s.Do(ctx, op) })
			eventually(t, "the leader waits", func() bool { return waiting(&s.connector.gate) == 1 })
			others := s.pile(t, insert(1), multi(insert(2)))
			cancel()
			require.ErrorIs(t, ends(t, "the leader", leader), context.Canceled)
			s.connector.gate.leave()
			for _, outcome := range others {
				require.NoError(t, ends(t, "op", outcome))
			}
			require.Equal(t, []int64{1, 2}, stored())
		})
	}
}

// If ctx ends after the op has started, the caller still gets the actual outcome.
func TestCommitter_Ctx_AfterStart(t *testing.T) {
	for name, end := range map[string]error{"done": nil, "failed": errOp} {
		t.Run(name, func(t *testing.T) {
			s, stored := newScene(t)
			s.hold(t)
			ctx, cancel := context.WithCancel(context.Background())
			started, goOn := make(chan bool), make(chan bool)
			first := s.add(t, context.Background(), multi(insert(0)))
			second := s.add(t, ctx, multi(insert(1), testOp{func(ctx context.Context, q row.Querier) error {
				close(started)
				<-goOn
				return errors.Join(ctx.Err(), end)
			}, false}))
			s.connector.gate.leave()
			<-started
			cancel()
			select {
			case err := <-second:
				t.Fatalf("an answer before the outcome: %v", err)
			case <-time.After(20 * time.Millisecond):
			}
			close(goOn)
			require.NoError(t, ends(t, "op", first))
			if err := ends(t, "op", second); end == nil {
				require.NoError(t, err)
				require.Equal(t, []int64{0, 1}, stored())
			} else {
				require.Equal(t, end.Error(), err.Error())
				require.Equal(t, []int64{0}, stored())
			}
		})
	}
}

func TestCommitter_CloseFinishesWaiting(t *testing.T) {
	s, stored := newScene(t)
	s.hold(t)
	outcomes := s.pile(t, multi(insert(0)), insert(1), insert(2))
	closed := []<-chan error{later(s.Close), later(s.Close)}
	eventually(t, "it closes", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.closed
	})
	require.ErrorIs(t, s.Do(context.Background(), insert(3)), wake.ErrClosed)
	select {
	case <-closed[0]:
		t.Fatal("closed before the ops were done")
	case <-time.After(20 * time.Millisecond):
	}
	s.connector.gate.leave()
	for _, outcome := range outcomes {
		require.NoError(t, ends(t, "op", outcome))
	}
	for _, c := range closed {
		require.NoError(t, ends(t, "Close", c))
	}
	require.Equal(t, []int64{0, 1, 2}, stored())
}

// Ops that wait too long fail with ErrBusy.
func TestCommitter_Busy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, pool := newPool(t, file(t), Config{BusyTimeout: 5 * time.Second})
		s := NewCommitter(OwnPool(pool), c.cfg.BusyTimeout)
		require.NoError(t, s.Do(context.Background(), multi()))
		require.True(t, c.gate.tryEnter())
		began := time.Now()
		var outcomes []<-chan error
		for i := range 4 {
			outcomes = append(outcomes, later(func() error { return s.Do(context.Background(), insert(i)) }))
			synctest.Wait()
			time.Sleep(time.Second)
		}
		for _, outcome := range outcomes {
			require.ErrorIs(t, <-outcome, engine.ErrBusy)
		}
		require.LessOrEqual(t, time.Since(began), 13*time.Second, "each waits for one limit, the next leader for two")
		c.gate.leave()
		require.NoError(t, s.Do(context.Background(), insert(9)))
		require.Equal(t, []int64{9}, values(t, pool))
		require.NoError(t, s.Close())
		require.NoError(t, pool.Close())
	})
}

// Each caller gets the outcome of its own op. Among many callers, some ops fail and some contexts end. The values of
// ops that returned nil are stored, and no others.
func TestCommitter_OwnOutcome(t *testing.T) {
	for name, ours := range map[string]bool{"on our connection": true, "on a foreign pool": false} {
		t.Run(name, func(t *testing.T) {
			const callers, each = 32, 60
			path := file(t)
			c, pool := newPool(t, path, Config{})
			source := OwnPool(pool)
			if !ours {
				source = ForeignPool(foreign(t, path))
			}
			s := NewCommitter(source, patient)
			perform(t, pool, `INSERT INTO t (v) VALUES (-1)`)
			before := c.Commits()
			var all sync.WaitGroup
			var done atomic.Int64
			good := make([][]bool, callers)
			for i := range callers {
				good[i] = make([]bool, each)
				all.Go(func() {
					for j := range each {
						ctx, cancel := context.WithCancel(context.Background())
						v := i*each + j
						op, bad := insert(v), false
						switch j % 7 {
						case 1:
							op = multi(insert(v))
						case 2:
							op, bad = multi(insert(v), failing(errOp)), true
						case 3:
							op, bad = insert(-1), true
						case 4:
							time.AfterFunc(time.Duration(v%500)*time.Microsecond, cancel)
						}
						err := s.Do(ctx, op)
						cancel()
						if bad && err == nil || j%7 < 2 && err != nil {
							t.Errorf("op %d of caller %d: %v", j, i, err)
						}
						good[i][j] = err == nil
						if err == nil {
							done.Add(1)
						}
					}
				})
			}
			all.Wait()
			batches := c.Commits() - before
			require.NoError(t, s.Close())
			stored := values(t, pool)[1:]
			require.EqualValues(t, done.Load(), len(stored))
			for _, v := range stored {
				require.True(t, good[v/each][v%each], "%d was stored and not answered with nil", v)
			}
			if ours {
				require.Less(t, batches, done.Load()/2, "commits for so many ops")
			}
		})
	}
}
