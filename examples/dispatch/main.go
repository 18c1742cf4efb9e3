// Dispatch runs a supervisor and several actors, each in its own process. It kills some actors,
// starts others and stops all actors of a type. Each job still runs where it belongs. See
// README.md.
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
	"syscall"
	"time"
)

// config holds the values of the flags.
type config struct {
	db                     string
	shared, pinned, legacy int // jobs in the scenarios A, B and C
	kills                  int
	work                   time.Duration
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal kills the program
	if len(os.Args) > 1 && os.Args[1] == childCommand {
		os.Exit(runChild(ctx, os.Args[2:], os.Stdin, os.Stderr))
	}
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run is the supervisor. It returns the exit code: 1 if the run or a check fails, 2 for invalid
// flags.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	c, err := parseFlags(args, stderr)
	if err != nil {
		return 2
	}
	if err := supervise(ctx, c, stdout); err != nil {
		fmt.Fprintln(stderr, "dispatch:", err)
		return 1
	}
	return 0
}

func parseFlags(args []string, stderr io.Writer) (config, error) {
	var c config
	f := flag.NewFlagSet("dispatch", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&c.db, "db", "", "create the database in this `file`, which must not exist, and keep it (default: in the temporary directory, removed at the end)")
	f.IntVar(&c.shared, "shared", 1000, "jobs shared by two instances")
	f.IntVar(&c.pinned, "pinned", 100, "jobs for a single instance out of four")
	f.IntVar(&c.legacy, "legacy", 10_000, "jobs in an old and a new queue")
	f.IntVar(&c.kills, "kills", 8, "number of processes to kill")
	f.DurationVar(&c.work, "work", time.Millisecond, "duration of a job")
	if err := f.Parse(args); err != nil {
		return c, err
	}
	if c.shared < 1 || c.pinned < 1 || c.legacy < 1 || c.kills < 0 || c.work < 0 {
		err := errors.New("-shared, -pinned and -legacy must be positive, and -kills and -work must not be negative")
		fmt.Fprintln(stderr, "dispatch:", err)
		return c, err
	}
	return c, nil
}

// supervise runs the scenarios and prints the results.
func supervise(ctx context.Context, c config, stdout io.Writer) (err error) {
	if c.db == "" {
		dir, err := os.MkdirTemp("", "honker-dispatch-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		c.db = filepath.Join(dir, "dispatch.db")
	} else if _, err := os.Stat(c.db); !errors.Is(err, os.ErrNotExist) {
		return errors.Join(fmt.Errorf("%s already exists", c.db), err)
	}
	s, err := open(ctx, c, stdout)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	began := time.Now()
	var all []check
	for _, scenario := range []func(context.Context) (check, error){s.share, s.pin, s.migrate} {
		result, err := scenario(ctx)
		if err != nil {
			return err
		}
		all = append(all, result)
	}
	if err := s.printProcesses(ctx); err != nil {
		return err
	}
	err = printChecks(stdout, all)
	fmt.Fprintf(stdout, "It took %v.\n", time.Since(began).Round(100*time.Millisecond))
	return errors.Join(err, s.db.Check(ctx))
}
