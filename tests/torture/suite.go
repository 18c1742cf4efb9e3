//go:build unix

// Package torture tests the guarantees of docs/guarantees.md by trying to violate them. It kills
// processes, cuts the power, lets disks fail, compares the library with models, and checks wakes
// with the safety poll turned off. Tests run a few rounds of each suite. The command in cmd runs
// the same suites for hours.
//
// A round depends only on its seed. A failing round reports its seed and keeps its files.
package torture

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"
)

// Suite is a kind of torture test.
type Suite struct {
	Name  string
	Share int // share of the run time, relative to the other suites
	Round func(context.Context, *Round) error
}

// Suites lists all suites.
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

// Round is a repetition of a suite. It ends early, without an error, when its ctx is cancelled.
type Round struct {
	Seed uint64
	Rand *rand.Rand
	Dir  string // initially empty
	*Counters
}

// Bounds limit the repetitions of a suite by time and by rounds.
type Bounds struct {
	Seed   uint64 // seed of the first round; each further round adds 1
	For    time.Duration
	Rounds int    // maximum number of rounds; 0 for no limit
	Least  int    // minimum number of rounds, even if For has passed
	Dir    string // directory for the files, which are kept after a failure; "" for a file system in memory, if there is one
}

// Run repeats rounds of the suite. It returns the error of the first failing round.
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

// once runs a single round. It deletes the files of the round unless it fails.
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

// scratch returns a directory in memory, where syncs are cheap, unless below is set.
func scratch(below string) string {
	const memory = "/dev/shm"
	if info, err := os.Stat(memory); below == "" && err == nil && info.IsDir() {
		return memory
	}
	return below
}

// sub creates a subdirectory of the round.
func (r *Round) sub(name string) (string, error) {
	dir := filepath.Join(r.Dir, name)
	return dir, os.MkdirAll(dir, 0o700)
}

// oneIn returns true with a probability of 1/n.
func (r *Round) oneIn(n int) bool { return r.Rand.IntN(n) == 0 }
