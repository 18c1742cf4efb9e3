package sqlite

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// bringer is an op that brings what.
type bringer struct {
	testOp
	what string
}

func (b bringer) Brings() string { return b.what }

// over is whether r's op has run, as far as anybody can tell who does not end it.
func over(r *Ride) bool {
	select {
	case <-r.Done():
		return true
	default:
		return false
	}
}

func TestARideIsCarriedByTheCommitThatBringsWhatItIsFor(t *testing.T) {
	for name, o := range map[string]testOp{"one statement": insert(1), "several": multi(insert(1))} {
		t.Run(name, func(t *testing.T) {
			s, stored := newScene(t)
			first, second, other := s.Ride("bread", insert(2)), s.Ride("bread", insert(3)), s.Ride("milk", insert(4))
			require.NoError(t, s.Do(context.Background(), insert(0)))
			require.False(t, over(first), "that brought nothing")

			before := s.home.Commits()
			require.NoError(t, s.Do(context.Background(), bringer{o, "bread"}))
			require.EqualValues(t, 1, s.home.Commits()-before)
			require.Equal(t, []int64{0, 1, 2}, stored())
			require.True(t, over(first))
			require.False(t, over(second), "one finds all that was brought")
			for ride, want := range map[*Ride]bool{first: true, second: false, other: false} {
				ran, err := ride.End()
				require.NoError(t, err)
				require.Equal(t, want, ran)
			}
			require.NoError(t, s.Do(context.Background(), bringer{insert(5), "bread"}))
			require.Equal(t, []int64{0, 1, 2, 5}, stored(), "who has ended is not carried")
		})
	}
}

// The ride comes last: one claim takes what a whole batch has brought.
func TestARideComesAfterAllOfTheBatch(t *testing.T) {
	s, _ := newScene(t)
	var found int64
	ride := s.Ride("bread", testOp{func(ctx context.Context, q Querier) error {
		return scanOne(ctx, q, `SELECT count(*) FROM t`, &found)
	}, false})
	s.hold(t)
	outcomes := s.pile(t, multi(insert(0)))
	for i := 1; i < 5; i++ {
		outcome := later(func() error { return s.Do(context.Background(), bringer{insert(i), "bread"}) })
		eventually(t, "the op waits", func() bool { return s.queued() == i+1 })
		outcomes = append(outcomes, outcome)
	}
	s.home.gate.leave()
	for _, outcome := range outcomes {
		require.NoError(t, ends(t, "op", outcome))
	}
	ran, err := ride.End()
	require.NoError(t, err)
	require.True(t, ran)
	require.EqualValues(t, 5, found)
}

func TestARideThatFailsLeavesNothingAndHarmsNobody(t *testing.T) {
	s, stored := newScene(t)
	ride := s.Ride("bread", multi(insert(2), failing(errOp)))
	require.NoError(t, s.Do(context.Background(), bringer{insert(1), "bread"}))
	require.Equal(t, []int64{1}, stored())
	ran, err := ride.End()
	require.True(t, ran)
	require.ErrorIs(t, err, errOp)
}

func TestWhatWasNotBroughtCarriesNobody(t *testing.T) {
	s, stored := newScene(t)
	ride := s.Ride("bread", insert(2))
	require.ErrorIs(t, s.Do(context.Background(), bringer{failing(errOp), "bread"}), errOp)
	require.NoError(t, s.Do(context.Background(), insert(1)))
	require.Equal(t, []int64{1}, stored())
	ran, err := ride.End()
	require.NoError(t, err)
	require.False(t, ran)
}

func TestARideSharesTheFateOfItsCommit(t *testing.T) {
	s, stored := newScene(t)
	_, err := s.conn.ExecContext(context.Background(), `CREATE TABLE late (v REFERENCES t (id) DEFERRABLE INITIALLY DEFERRED)`)
	require.NoError(t, err)
	ride := s.Ride("bread", insert(2))
	require.Error(t, s.Do(context.Background(), bringer{multi(insert(1), testOp{func(ctx context.Context, q Querier) error {
		_, err := q.ExecContext(ctx, `INSERT INTO late VALUES (99)`) // which the commit finds
		return err
	}, true}), "bread"}))
	ran, err := ride.End()
	require.True(t, ran)
	require.True(t, IsConstraint(err), err)
	require.Empty(t, stored())
}

// Whatever the order in which rides begin, end, and are called for: each op runs once or
// never, and its owner knows which.
func TestWhoeverRidesKnowsWhetherTheyWereCarried(t *testing.T) {
	s, stored := newScene(t)
	var all sync.WaitGroup
	var carried, brought atomic.Int64
	for g := range 4 {
		all.Go(func() {
			for i := range 200 {
				ride := s.Ride("bread", insert(1000*(g+1)+i))
				if i%3 > 0 {
					<-ride.Done()
				}
				if ran, err := ride.End(); ran && err == nil {
					carried.Add(1)
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	for n := 0; ; n++ {
		select {
		case <-done:
			require.Len(t, stored(), int(carried.Load()+brought.Load()))
			require.Empty(t, s.rides)
			return
		default:
			require.NoError(t, s.Do(context.Background(), bringer{insert(100_000 + n), "bread"}))
			brought.Add(1)
		}
	}
}
