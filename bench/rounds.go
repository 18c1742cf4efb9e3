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

// Case is one table to be: what every contestant does in its turn.
type Case struct {
	Name       string
	Curve      string  // the curve that it is a point of
	X          float64 // and where
	Durability Durability
	Shortest   time.Duration // turn, unless the run is a hasty one; 0: any
	Once       bool          // one round, however many there are of the others
	Metrics    []Metric
	Turn       func(ctx context.Context, t *Turn) ([]float64, error) // a value per metric
}

// Suite is a set of cases that share the time.
type Suite struct {
	Name        string
	Cases       []Case
	Contestants func() []Contestant // nil: all
}

// contestants that take part; names is of some, separated by commas, or "" for all.
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

// Turn is one contestant in one round of a case.
type Turn struct {
	Contestant
	Durability Durability
	Length     time.Duration
	Scale      float64
	Bound      time.Duration // of a turn with a number of jobs for its length
	Fewest     int           // samples, however long they take
	Rand       *rand.Rand
	dir        string
	kept       map[string]Queue // from one round to the next
}

// scaled is n on a full run.
func (t *Turn) scaled(n int) int { return max(min(n, 10), int(float64(n)*t.Scale)) }

// path is that of a fresh file.
func (t *Turn) path() (string, error) {
	dir, err := os.MkdirTemp(t.dir, "")
	return filepath.Join(dir, "bench.db"), err
}

// fresh opens a fresh file.
func (t *Turn) fresh(ctx context.Context) (Queue, error) {
	path, err := t.path()
	if err != nil {
		return nil, err
	}
	return t.Open(ctx, path, t.Durability)
}

// keep opens a file in the first round, and prepares it, for all rounds of the case.
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

// Runner interleaves the contestants: in every round each has a turn, in an order that
// the seed decides, so that the machine's good and bad minutes are shared.
type Runner struct {
	Only     string // contestants by name, separated by commas; "": all
	Rounds   int
	For      time.Duration // per suite
	Scale    float64
	Bound    time.Duration // of a turn with a number of jobs for its length
	Fewest   int           // samples of a turn, however long they take
	Hasty    bool          // numbers do not matter
	Seed     uint64
	Dir      string
	Progress io.Writer
}

const (
	shortest = 10 * time.Millisecond // turn
	patience = 3 * time.Minute       // for a turn and what it has to prepare
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
	failed error // it has no number, and no more turns
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

// rand does not depend on which other suites run.
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
