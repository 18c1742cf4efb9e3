// Bench compares the performance of honker with similar projects and with the bare driver. It
// produces the numbers in docs/performance.md. See README.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

func main() {
	asChild()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	context.AfterFunc(ctx, stop) // a second signal kills the program
	code := run(ctx, os.Args[1:], os.Stderr)
	if err := stopPostgres(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
	}
	os.Exit(code)
}

// config holds the values of the flags.
type config struct {
	suite, cases, only, out, dir, from, pages, against string
	length                                             time.Duration
	rounds                                             int
	scale                                              float64
	seed                                               uint64
}

// run returns the exit code: 1 for a failure, 2 for invalid flags.
func run(ctx context.Context, args []string, stderr io.Writer) int {
	c, err := parseFlags(args, stderr)
	if err != nil {
		return 2
	}
	if err := c.run(ctx, stderr); err != nil {
		fmt.Fprintln(stderr, "bench:", err)
		return 1
	}
	return 0
}

func parseFlags(args []string, stderr io.Writer) (config, error) {
	var c config
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&c.suite, "suite", "all", "`suites`: all, or some of enqueue,work,wake,flat,idle,stream,contention,crowd,neighbours,relay,pool,lanes,dispatch,flow,postgres,postgres-streams")
	f.StringVar(&c.cases, "case", "", "only the cases with that `text` in their names")
	f.StringVar(&c.only, "only", "", "`contestants` by name, separated by commas (default: all)")
	f.DurationVar(&c.length, "for", time.Minute, "how long to measure per suite; what has to be prepared comes on top")
	f.IntVar(&c.rounds, "rounds", 5, "how often each contestant has its turn")
	f.Float64Var(&c.scale, "scale", 1, "share of the jobs, events and databases of a full run, or a multiple of them")
	f.Uint64Var(&c.seed, "seed", 1, "of the order of the turns and of the pauses")
	f.StringVar(&c.out, "out", "results.json", "the results `file`; results.md and charts are put beside it")
	f.StringVar(&c.dir, "dir", "", "a `folder` on the disk to measure (default: the system's temporary one)")
	f.StringVar(&c.from, "from", "", "measure nothing: make tables and charts of that results `file`")
	f.StringVar(&c.against, "against", "", "results `files` of earlier runs, separated by commas: fail if honker is more than twice as slow beside raw as it was then")
	f.StringVar(&c.pages, "pages", "", "measure nothing: write the figures of bench/results into the pages below that `folder`, the root of the repository")
	err := f.Parse(args)
	if err == nil {
		if err = c.check(f.Args()); err != nil {
			fmt.Fprintln(stderr, "bench:", err)
		}
	}
	return c, err
}

func (c config) check(rest []string) error {
	if len(rest) > 0 || c.rounds < 1 || c.scale <= 0 || c.length <= 0 {
		return errors.New("-rounds, -for and -scale must be positive, and nothing may follow the flags")
	}
	_, err := c.suites()
	return err
}

func (c config) suites() (chosen []Suite, err error) {
	if c.suite == "all" {
		return only(suites(), c.cases), nil
	}
	for _, name := range strings.Split(c.suite, ",") {
		i := slices.IndexFunc(suites(), func(s Suite) bool { return s.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("no suite is called %q", name)
		}
		chosen = append(chosen, suites()[i])
	}
	return only(chosen, c.cases), nil
}

func (c config) run(ctx context.Context, stderr io.Writer) error {
	if c.pages != "" {
		return updatePages(c.pages)
	}
	if c.from != "" {
		results, err := readResults(c.from)
		if err != nil {
			return err
		}
		return render(results, c.from)
	}
	if err := os.MkdirAll(filepath.Dir(c.out), 0o755); err != nil { // fail now rather than after an hour
		return err
	}
	results, err := c.measure(ctx, stderr)
	if len(results.Tables) == 0 { // after an interrupt, render the results so far
		return err
	}
	if err = errors.Join(err, render(results, c.out)); err == nil && c.against != "" {
		err = checkBars(results, c.against)
	}
	return err
}

func (c config) measure(ctx context.Context, stderr io.Writer) (*Results, error) {
	chosen, err := c.suites()
	if err != nil {
		return &Results{}, err
	}
	results := &Results{Header: c.header(chosen)}
	r := Runner{Only: c.only, Rounds: c.rounds, For: c.length, Scale: c.scale, Bound: 4 * time.Second, Fewest: 5, Seed: c.seed, Dir: c.dir, Progress: stderr}
	for _, s := range chosen {
		var tables []Table
		if tables, err = r.run(ctx, s); err == nil && len(tables) == 0 {
			continue
		}
		results.Tables = append(results.Tables, tables...)
		results.Header.Took = time.Since(results.Header.Began).Round(time.Second).String()
		if err = errors.Join(err, results.write(c.out)); err != nil { // after each suite, in case a long run is interrupted
			break
		}
	}
	if err == nil && len(results.Tables) == 0 {
		err = fmt.Errorf("no contestant of these suites is called %q", c.only)
	}
	return results, err
}

// durability describes the settings of the suites.
func durability(chosen []Suite) string {
	texts := map[bool]string{
		false: "WAL; synchronous=NORMAL, and FULL where a table says so",
		true:  "PostgreSQL as initdb makes it, with fsync and synchronous_commit on, unless a table says off",
	}
	var all []string
	for _, s := range chosen {
		if text := texts[s.Cases[0].Durability.onPostgres()]; !slices.Contains(all, text) {
			all = append(all, text)
		}
	}
	return strings.Join(all, "; ")
}

func (c config) header(chosen []Suite) Header {
	h := Header{
		Machine: thisMachine(), Began: time.Now().UTC(), For: c.length.String(), Rounds: c.rounds, Scale: c.scale, Seed: c.seed,
		Durability: durability(chosen), Skipped: absent(),
	}
	for _, s := range chosen {
		for _, one := range s.contestants(c.only) {
			if about := (About{one.Name, one.About}); !slices.Contains(h.Contestants, about) {
				h.Contestants = append(h.Contestants, about)
			}
		}
	}
	return h
}
