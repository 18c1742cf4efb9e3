//go:build unix

package torture

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/honker-go/honker/internal/testkit"
	"github.com/honker-go/honker/tests/torture/wallclock"
)

// Clocks is Kills among processes with clocks that are set back and forth all the time, each
// by itself. Leases end early for some and late for others, so work is claimed by several;
// nothing is lost, and what shares the transaction of its ack happens once.
func Clocks(ctx context.Context, r *Round) error {
	r.Add("clock_steps", 0)
	if !wallclock.Supported {
		return nil
	}
	s := &storm{Round: r, parts: timelessParts, pause: 100 * time.Millisecond, clocks: []time.Duration{}}
	for range 16 {
		s.clocks = append(s.clocks, anyStep(r.Rand))
	}
	return jobStorm(s).run(ctx)
}

// timelessParts have no ticker: which times a schedule fires is decided by its clock.
var timelessParts = [][]string{
	{"producer"},
	{"worker", "mailer", "counter", "stepper", "spender"},
	{"worker", "mailer", "member"},
	{"subscriber", "piper", "member"},
	{"producer", "worker", "member"},
}

// anyStep is how far a clock is off: seconds as after a correction, up to days as after a
// machine was restored.
func anyStep(luck *rand.Rand) time.Duration {
	longest := []time.Duration{2 * time.Second, time.Minute, time.Hour, 48 * time.Hour}[luck.IntN(4)]
	return time.Duration(luck.Int64N(int64(2*longest))) - longest
}

// setClock has each of the clocks for some milliseconds, or the only one for ever.
func (a *actor) setClock() {
	if len(a.Clocks) == 0 {
		return
	}
	luck := rand.New(rand.NewPCG(uint64(a.Number), 5))
	for ctx := testkit.ChildContext(); ctx.Err() == nil; {
		wallclock.Set(a.Clocks[luck.IntN(len(a.Clocks))])
		a.note(stepped, 1)
		if len(a.Clocks) == 1 {
			return
		}
		time.Sleep(time.Duration(1+luck.IntN(50)) * time.Millisecond)
	}
}
