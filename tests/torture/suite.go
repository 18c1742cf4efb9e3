//go:build unix

// Package torture tests the guarantees of docs/guarantees.md by trying to violate them. It kills
// processes, crashes the server, cuts the power, lets disks fail, compares the library with models, and checks wakes
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
	"slices"
	"time"

	"github.com/honker-go/honker/internal/testkit"
)

// Suite is a kind of torture test.
type Suite struct {
	Name  string
	Share int // share of the run time, relative to the other suites
	Round func(context.Context, *Round) error
	Files bool // the suite is about files: it does not run on a server
}

// Suites lists all suites.
var Suites = []Suite{
	{"kills", 22, Kills, false},
	{"crowd", 10, Crowd, false},
	{"clocks", 10, Clocks, false},
	{"replaced", 3, Replaced, true},
	{"cuts", 22, Cuts, true},
	{"faults", 8, Faults, true},
	{"models", 8, Models, true},
	{"tails", 2, Tails, true},
	{"wakes", 9, Wakes, true},
	{"leaks", 6, Leaks, true},
	{"relay", 12, Relays, false},
	{"dispatch", 12, Dispatches, false},
	{"flow", 12, Flows, false},
}

// suites returns the suites for the database that this process tests.
func suites() []Suite {
	return slices.DeleteFunc(slices.Clone(Suites), func(s Suite) bool { return s.Files && !testkit.OnFile() })
}

// Round is a repetition of a suite. It ends early, without an error, when its ctx is cancelled.
type Round struct {
	Seed uint64
	Rand *rand.Rand
	Dir  string        // initially empty
	Span time.Duration // see Bounds.Span
	*Counters
}

// Bounds limit the repetitions of a suite by time and by rounds.
type Bounds struct {
	Seed   uint64 // seed of the first round; each further round adds 1
	For    time.Duration
	Rounds int           // maximum number of rounds; 0 for no limit
	Least  int           // minimum number of rounds, even if For has passed
	Span   time.Duration // duration of the kills in a round; 0 for the suite's own
	Dir    string        // directory for the files, which are kept after a failure; "" for a file system in memory, if there is one
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
		if err := s.once(ctx, b.Seed+uint64(i), b, c); err != nil {
			return err
		}
	}
	return nil
}

// once runs a single round. It deletes the files of the round unless it fails.
func (s Suite) once(ctx context.Context, seed uint64, b Bounds, c *Counters) error {
	dir, err := os.MkdirTemp(scratch(b.Dir), "torture-"+s.Name+"-")
	if err != nil {
		return err
	}
	r := &Round{Seed: seed, Rand: rand.New(rand.NewPCG(seed, 1)), Dir: dir, Span: b.Span, Counters: c}
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
