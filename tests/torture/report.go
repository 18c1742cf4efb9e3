//go:build unix

package torture

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"github.com/honker-go/honker/internal/testkit"
)

// Report is the result of a run of several suites.
type Report struct {
	Began    time.Time         `json:"began"`
	Took     string            `json:"took"`
	Seed     uint64            `json:"seed"`
	Machine  map[string]any    `json:"machine"`
	Versions map[string]string `json:"versions"`
	Suites   []SuiteReport     `json:"suites"`
	Failed   int               `json:"failed"` // number of suites with a violation
}

// SuiteReport is the result of a suite.
type SuiteReport struct {
	Name      string           `json:"name"`
	Took      string           `json:"took"`
	Counters  map[string]int64 `json:"counters"`
	Violation string           `json:"violation,omitempty"`
}

// Options are the options of All.
type Options struct {
	For    time.Duration // total duration of all suites
	Seed   uint64
	Only   []string  // names of suites; nil for all
	Dir    string    // see Bounds.Dir
	Live   io.Writer // if not nil, gets the counters every second
	Cycles int       // number of turns of each suite; default one per ten minutes
}

// All runs the suites in turns, according to their shares, until o.For has passed or ctx is
// cancelled. A suite with a violation gets no further turns.
func All(ctx context.Context, o Options) (*Report, error) {
	suites, err := choose(o.Only)
	if err != nil {
		return nil, err
	}
	r := &runner{Options: o, began: time.Now()}
	for _, s := range suites {
		r.turns = append(r.turns, &turn{Suite: s, counters: &Counters{}, seed: o.Seed})
		r.shares += s.Share
	}
	if r.Cycles == 0 {
		r.Cycles = max(1, int(o.For/(10*time.Minute)))
	}
	defer r.show()()
	for range r.Cycles {
		for _, t := range r.turns {
			r.run(ctx, t)
		}
	}
	return r.report(), nil
}

// choose returns the suites with the given names, or all.
func choose(names []string) (chosen []Suite, err error) {
	for _, s := range suites() {
		if len(names) == 0 {
			chosen = append(chosen, s)
		}
		for _, name := range names {
			if s.Name == name {
				chosen = append(chosen, s)
			}
		}
	}
	if len(names) > len(chosen) || len(chosen) == 0 {
		return nil, fmt.Errorf("torture: unknown suite; the suites are %v", suiteNames())
	}
	return chosen, nil
}

func suiteNames() (names []string) {
	for _, s := range suites() {
		names = append(names, s.Name)
	}
	return names
}

type runner struct {
	Options
	began  time.Time
	turns  []*turn
	shares int
	mu     sync.Mutex // protects now
	now    *turn
}

// turn is a suite with its state.
type turn struct {
	Suite
	counters *Counters
	seed     uint64
	took     time.Duration
	err      error
}

// run gives a suite its share of the time for a turn. The next turn continues with new seeds.
func (r *runner) run(ctx context.Context, t *turn) {
	if t.err != nil || ctx.Err() != nil {
		return
	}
	r.mu.Lock()
	r.now = t
	r.mu.Unlock()
	span := r.For * time.Duration(t.Share) / time.Duration(r.shares*r.Cycles)
	began, rounds := time.Now(), t.counters.Get("rounds")
	t.err = t.Suite.Run(ctx, Bounds{Seed: t.seed, For: span, Dir: r.Dir}, t.counters)
	t.took += time.Since(began)
	t.seed += uint64(t.counters.Get("rounds")-rounds) + 1
	if t.err != nil && r.Live != nil {
		fmt.Fprintf(r.Live, "\nVIOLATION %v\n", t.err)
	}
}

// show prints the counters of the running suite every second.
func (r *runner) show() (stop func()) {
	if r.Live == nil {
		return func() {}
	}
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for tick := time.NewTicker(time.Second); ; {
			select {
			case <-done:
				return
			case <-tick.C:
				r.mu.Lock()
				t := r.now
				r.mu.Unlock()
				if t != nil {
					fmt.Fprintf(r.Live, "%s %s: %s\n", time.Since(r.began).Round(time.Second), t.Name, t.counters)
				}
			}
		}
	}()
	return func() { close(done); <-ended }
}

func (r *runner) report() *Report {
	out := &Report{
		Began: r.began.UTC(), Took: time.Since(r.began).Round(time.Millisecond).String(), Seed: r.Seed,
		Machine: machine(), Versions: versions(),
	}
	for _, t := range r.turns {
		s := SuiteReport{Name: t.Name, Took: t.took.Round(time.Millisecond).String(), Counters: t.counters.All()}
		if t.err != nil {
			s.Violation = t.err.Error()
			out.Failed++
		}
		out.Suites = append(out.Suites, s)
	}
	return out
}

// Write writes the report as indented JSON.
func (r *Report) Write(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

func machine() map[string]any {
	m := map[string]any{"os": runtime.GOOS, "arch": runtime.GOARCH, "cpus": runtime.NumCPU()}
	if release, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m["kernel"] = string(release[:max(0, len(release)-1)])
	}
	return m
}

func versions() map[string]string {
	v := map[string]string{"go": runtime.Version()}
	if server, err := testkit.ServerVersion(); server != "" && err == nil {
		v["postgres"] = server
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	v[info.Main.Path] = info.Main.Version
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" || s.Key == "vcs.modified" {
			v[s.Key] = s.Value
		}
	}
	for _, d := range info.Deps {
		if d.Path == "modernc.org/sqlite" || d.Path == "modernc.org/libc" {
			v[d.Path] = d.Version
		}
	}
	return v
}
