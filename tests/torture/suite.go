//go:build unix

// Package torture shows the promises of docs/guarantees.md by trying to break them:
// processes that are killed, power cuts, disks that fail, models, wakes without a poll.
// Tests run a few rounds of each suite; the command in cmd runs the same code for hours.
//
// A round is made of its seed. A round that fails says the seed and keeps its files.
package torture

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"
)

// Suite is one way to break promises.
type Suite struct {
	Name  string
	Share int // of the time, beside the others
	Round func(context.Context, *Round) error
}

// Suites are all there are.
var Suites = []Suite{
	{"kills", 22, Kills},
	{"crowd", 10, Crowd},
	{"clocks", 10, Clocks},
	{"replaced", 3, Replaced},
	{"cuts", 22, Cuts},
	{"faults", 8, Faults},
	{"models", 8, Models},
	{"tails", 2, Tails},
	{"wakes", 9, Wakes},
	{"leaks", 6, Leaks},
	{"relay", 12, Relays},
	{"dispatch", 12, Dispatches},
}

// Round is one repetition of a suite. It ends early, and well, when its ctx does.
type Round struct {
	Seed uint64
	Rand *rand.Rand
	Dir  string // empty at first
	*Counters
}

// Bounds say when a suite has been repeated enough: by time, by rounds, or by ctx.
type Bounds struct {
	Seed   uint64 // of the first round; each next one has the next seed
	For    time.Duration
	Rounds int    // 0: no bound
	Least  int    // so many rounds even if they take longer
	Dir    string // what failed is kept below; "": the system's memory, if it has such a place
}

// Run repeats the suite's rounds. The first that fails ends it.
func (s Suite) Run(ctx context.Context, b Bounds, c *Counters) error {
	timed, cancel := context.WithTimeout(ctx, b.For)
	defer cancel()
	for i := 0; b.Rounds == 0 || i < b.Rounds; i++ {
		if i >= b.Least {
			ctx = timed
		}
		if ctx.Err() != nil {
			break
		}
		if err := s.once(ctx, b.Seed+uint64(i), b.Dir, c); err != nil {
			return err
		}
	}
	return nil
}

func (s Suite) once(ctx context.Context, seed uint64, below string, c *Counters) error {
	dir, err := os.MkdirTemp(scratch(below), "torture-"+s.Name+"-")
	if err != nil {
		return err
	}
	r := &Round{Seed: seed, Rand: rand.New(rand.NewPCG(seed, 1)), Dir: dir, Counters: c}
	if err := s.Round(ctx, r); err != nil {
		return fmt.Errorf("%s: seed %d: %w (files kept in %s)", s.Name, seed, err, dir)
	}
	c.Add("rounds", 1)
	return os.RemoveAll(dir)
}

// scratch is where a sync costs nothing.
func scratch(below string) string {
	const memory = "/dev/shm"
	if info, err := os.Stat(memory); below == "" && err == nil && info.IsDir() {
		return memory
	}
	return below
}

// sub makes a directory of the round.
func (r *Round) sub(name string) (string, error) {
	dir := filepath.Join(r.Dir, name)
	return dir, os.MkdirAll(dir, 0o700)
}

// oneIn is true once in n times.
func (r *Round) oneIn(n int) bool { return r.Rand.IntN(n) == 0 }
