//go:build unix

package torture

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/honker-go/honker/internal/testkit"
	"github.com/honker-go/honker/tests/torture/wallclock"
)

// Clocks is like Kills, but each process sets its clock back and forth all the time. Leases end
// early for some processes and late for others, so several may claim the same work. Nothing may be
// lost, and writes in the transaction of an ack must happen once.
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

// timelessParts has no ticker, because the ticker's clock decides which times fire.
var timelessParts = [][]string{
	{"producer"},
	{"worker", "mailer", "counter", "stepper", "spender"},
	{"worker", "mailer", "member"},
	{"subscriber", "piper", "member"},
	{"producer", "worker", "member"},
}

// anyStep returns a random clock offset: from seconds, as after a correction, to days, as after
// restoring a machine.
func anyStep(luck *rand.Rand) time.Duration {
	longest := []time.Duration{2 * time.Second, time.Minute, time.Hour, 48 * time.Hour}[luck.IntN(4)]
	return time.Duration(luck.Int64N(int64(2*longest))) - longest
}

// setClock sets each of the clocks for some milliseconds in random order. A single clock stays set.
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
