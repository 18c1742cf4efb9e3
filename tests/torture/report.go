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
)

// Report is what a run of all suites has found.
type Report struct {
	Began    time.Time         `json:"began"`
	Took     string            `json:"took"`
	Seed     uint64            `json:"seed"`
	Machine  map[string]any    `json:"machine"`
	Versions map[string]string `json:"versions"`
	Suites   []SuiteReport     `json:"suites"`
	Failed   int               `json:"failed"` // suites with a violation
}

// SuiteReport is what one suite has counted.
type SuiteReport struct {
	Name      string           `json:"name"`
	Took      string           `json:"took"`
	Counters  map[string]int64 `json:"counters"`
	Violation string           `json:"violation,omitempty"`
}

// Options of All.
type Options struct {
	For    time.Duration // of all suites together
	Seed   uint64
	Only   []string  // suites; nil: all
	Dir    string    // see Bounds
	Live   io.Writer // where the counters are shown every second
	Cycles int       // how often each suite has its turn; default one in ten minutes
}

// All runs the suites in turns, in the shares they have, until the time is over or ctx
// ends. A suite that has found a violation gets no more turns.
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

// choose is all suites, or those named.
func choose(names []string) (chosen []Suite, err error) {
	for _, s := range Suites {
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
		return nil, fmt.Errorf("torture: the suites are %v", suiteNames())
	}
	return chosen, nil
}

func suiteNames() (names []string) {
	for _, s := range Suites {
		names = append(names, s.Name)
	}
	return names
}

type runner struct {
	Options
	began  time.Time
	turns  []*turn
	shares int
	mu     sync.Mutex // guards now
	now    *turn
}

// turn is a suite with what it has done.
type turn struct {
	Suite
	counters *Counters
	seed     uint64
	took     time.Duration
	err      error
}

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

// show writes the counters of the suite that runs, every second.
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

// Write writes the report as JSON.
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
