// Feed publishes an access log as a stream of events and shows the progress of its consumers: a
// counter, an alarm, a condenser and a group of resolvers. See README.md.
package main

import (
	"context"
	_ "embed"
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

//go:embed testdata/access.log
var testdata string

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal kills the program
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run returns the exit code: 1 if the run fails or the books do not balance, 2 for invalid flags.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	c, err := parseFlags(args, stderr)
	if err != nil {
		return 2
	}
	if err := serve(ctx, c, stdout); err != nil {
		fmt.Fprintln(stderr, "feed:", err)
		return 1
	}
	return 0
}

func parseFlags(args []string, stderr io.Writer) (config, error) {
	var c config
	f := flag.NewFlagSet("feed", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&c.db, "db", "", "keep the database in this `file` (default: a temporary one)")
	f.StringVar(&c.log, "log", "", "the access log, a `file` (default: a copy of the sample, beside the database)")
	f.IntVar(&c.rate, "rate", 600, "lines per second; 0 for no limit")
	f.BoolVar(&c.follow, "follow", false, "wait for more lines at the end of the log, until interrupted")
	f.DurationVar(&c.lookup, "lookup", 2*time.Millisecond, "duration of a lookup")
	f.DurationVar(&c.lease, "lease", 5*time.Second, "lease of an event; events of a killed process wait this long")
	if err := f.Parse(args); err != nil {
		return c, err
	}
	if c.rate < 0 || c.lookup < 0 || c.lease <= 0 {
		err := errors.New("-rate and -lookup must not be negative, and -lease must be positive")
		fmt.Fprintln(stderr, "feed:", err)
		return c, err
	}
	return c, nil
}

func serve(ctx context.Context, c config, stdout io.Writer) (err error) {
	if c.db == "" {
		dir, err := os.MkdirTemp("", "feed-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		c.db = filepath.Join(dir, "feed.db")
	}
	if err := os.MkdirAll(filepath.Dir(c.db), 0o755); err != nil {
		return err
	}
	if c.log == "" {
		c.log = filepath.Join(filepath.Dir(c.db), "access.log")
		if err := unpack(c.log); err != nil {
			return err
		}
	}
	f, err := open(ctx, c, stdout)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	return f.serve(ctx)
}

// unpack writes the sample to a file that can be followed. An existing file is kept, because it may
// have grown. The rename makes the file appear only when it is complete.
func unpack(log string) error {
	if _, err := os.Stat(log); err == nil {
		return nil
	}
	draft := log + ".draft"
	if err := os.WriteFile(draft, []byte(testdata), 0o644); err != nil {
		return err
	}
	return os.Rename(draft, log)
}
