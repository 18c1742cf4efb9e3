package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Case defines a table. In its turn, each contestant runs Turn.
type Case struct {
	Name       string
	Curve      string  // name of the curve of which the case is a point
	X          float64 // position on the curve
	Durability Durability
	Shortest   time.Duration // minimum length of a turn, except in a hasty run; 0 for none
	Once       bool          // run a single round
	Metrics    []Metric
	Turn       func(ctx context.Context, t *Turn) ([]float64, error) // returns a value per metric
}

// Suite is a set of cases that share the time of a run.
type Suite struct {
	Name        string
	Cases       []Case
	Contestants func() []Contestant // nil for all contestants
}

// contestants returns the contestants of the suite. If names is not empty, it selects some of them
// by their names, separated by commas.
func (s Suite) contestants(names string) (chosen []Contestant) {
	all := contestants
	if s.Contestants != nil {
		all = s.Contestants
	}
	for _, one := range all() {
		if names == "" || slices.Contains(strings.Split(names, ","), one.Name) {
			chosen = append(chosen, one)
		}
	}
	return chosen
}

// Turn is the turn of a contestant in a round of a case.
type Turn struct {
	Contestant
	Durability Durability
	Length     time.Duration
	Scale      float64
	Bound      time.Duration // maximum length of a turn that processes a fixed number of jobs
	Fewest     int           // minimum number of samples, however long they take
	Rand       *rand.Rand
	dir        string
	kept       map[string]Queue // queues kept from round to round
}

// scaled returns n reduced by Scale, but at least 10 unless n is less.
func (t *Turn) scaled(n int) int { return max(min(n, 10), int(float64(n)*t.Scale)) }

// path returns the path of a new file in its own directory.
func (t *Turn) path() (string, error) {
	dir, err := os.MkdirTemp(t.dir, "")
	return filepath.Join(dir, "bench.db"), err
}

// fresh opens a new file.
func (t *Turn) fresh(ctx context.Context) (Queue, error) {
	path, err := t.path()
	if err != nil {
		return nil, err
	}
	return t.Open(ctx, path, t.Durability)
}

// keep opens and prepares a file in the first round and reuses it in all rounds of the case.
func (t *Turn) keep(ctx context.Context, name string, prepare func(Queue) error) (Queue, error) {
	if q := t.kept[name]; q != nil {
		return q, nil
	}
	q, err := t.fresh(ctx)
	if err != nil {
		return nil, err
	}
	t.kept[name] = q
	return q, prepare(q)
}

// Runner runs suites. It interleaves the contestants: each has a turn in every round, in an order
// that depends on the seed. Slow periods of the machine thus affect all of them alike.
type Runner struct {
	Only     string // names of contestants, separated by commas; "" for all
	Rounds   int
	For      time.Duration // time per suite
	Scale    float64
	Bound    time.Duration // maximum length of a turn that processes a fixed number of jobs
	Fewest   int           // minimum number of samples of a turn, however long they take
	Hasty    bool          // the numbers do not matter
	Seed     uint64
	Dir      string
	Progress io.Writer
}

const (
	shortest = 10 * time.Millisecond // minimum length of a turn
	patience = 3 * time.Minute       // limit for a turn including its preparation
)

func (r *Runner) run(ctx context.Context, s Suite) (tables []Table, err error) {
	contestants := s.contestants(r.Only)
	if len(contestants) == 0 {
		fmt.Fprintf(r.Progress, "%s: none of %s takes part\n", s.Name, r.Only)
		return nil, nil
	}
	turns := r.Rounds * len(s.Cases) * len(contestants)
	share := max(shortest, r.For/time.Duration(turns))
	for _, c := range s.Cases {
		length := share
		if !r.Hasty {
			length = max(length, c.Shortest)
		}
		fmt.Fprintf(r.Progress, "%s: %s, %s, turns of %v\n", s.Name, c.Name, c.Durability, length.Round(time.Millisecond))
		t, err := r.table(ctx, s.Name, contestants, c, length)
		if err != nil {
			return tables, err
		}
		tables = append(tables, t)
	}
	return tables, nil
}

// entry is a contestant in a case.
type entry struct {
	Contestant
	rounds [][]float64
	failed error // set if it failed; it then has no number and no more turns
	kept   map[string]Queue
}

func (r *Runner) table(ctx context.Context, suite string, contestants []Contestant, c Case, length time.Duration) (Table, error) {
	dir, err := os.MkdirTemp(r.Dir, "honker-bench-")
	if err != nil {
		return Table{}, err
	}
	defer os.RemoveAll(dir)
	load := loadAverage()
	var entries []*entry
	for _, one := range contestants {
		entries = append(entries, &entry{Contestant: one, kept: map[string]Queue{}})
	}
	rounds := r.Rounds
	if c.Once {
		rounds = 1
	}
	for round := range rounds {
		r.round(ctx, c, entries, Turn{Durability: c.Durability, Length: length, Scale: r.Scale, Bound: r.Bound, Fewest: r.Fewest, Rand: r.rand(suite, c, round), dir: dir})
	}
	for _, e := range entries {
		for _, q := range e.kept {
			_ = q.Close()
		}
	}
	t := newTable(suite, c, entries)
	t.Load = load
	return t, context.Cause(ctx)
}

// rand returns the random source of a round. It does not depend on which other suites run.
func (r *Runner) rand(suite string, c Case, round int) *rand.Rand {
	sum := uint64(round)
	for _, b := range []byte(suite + c.Name + string(c.Durability)) {
		sum = sum*31 + uint64(b)
	}
	return rand.New(rand.NewPCG(r.Seed, sum))
}

func (r *Runner) round(ctx context.Context, c Case, entries []*entry, t Turn) {
	for _, i := range t.Rand.Perm(len(entries)) {
		e := entries[i]
		if e.failed != nil || ctx.Err() != nil {
			continue
		}
		t.Contestant, t.kept = e.Contestant, e.kept
		values, err := turn(ctx, c, &t)
		if err != nil {
			e.failed = err
			fmt.Fprintf(r.Progress, "  %s: %v\n", e.Name, err)
			continue
		}
		e.rounds = append(e.rounds, values)
		fmt.Fprintf(r.Progress, "  %s: %s\n", e.Name, summary(c.Metrics, values))
	}
}

func turn(ctx context.Context, c Case, t *Turn) ([]float64, error) {
	ctx, cancel := context.WithTimeout(ctx, patience+t.Length)
	defer cancel()
	return c.Turn(ctx, t)
}

func summary(metrics []Metric, values []float64) string {
	var words []string
	for i, m := range metrics {
		words = append(words, fmt.Sprintf("%s %s %s", m.Name, number(values[i]), m.Unit))
	}
	return strings.Join(words, ", ")
}

func newTable(suite string, c Case, entries []*entry) Table {
	t := Table{Suite: suite, Case: c.Name, Curve: c.Curve, X: c.X, Durability: c.Durability, Metrics: c.Metrics}
	var ceiling *entry
	if entries[0].Name == ceilingName {
		ceiling = entries[0]
	}
	for _, e := range entries {
		t.Rows = append(t.Rows, newRow(e, ceiling, len(c.Metrics)))
	}
	return t
}

func newRow(e, ceiling *entry, metrics int) Row {
	row := Row{Contestant: e.Name, Cells: []Cell{}}
	if e.failed != nil {
		row.Note = note(e.failed)
		return row
	}
	for m := range metrics {
		var beside []float64
		if ceiling != nil && ceiling.failed == nil && ceiling != e {
			beside = column(ceiling.rounds, m)
		}
		if len(e.rounds) > 0 {
			row.Cells = append(row.Cells, newCell(column(e.rounds, m), beside))
		}
	}
	return row
}

func note(err error) string {
	if errors.Is(err, errNA) {
		return err.Error()
	}
	return "failed: " + err.Error()
}

func column(rounds [][]float64, m int) (out []float64) {
	for _, values := range rounds {
		out = append(out, values[m])
	}
	return out
}
