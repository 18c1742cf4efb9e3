// Relay sends the orders of three customers as webhooks. Each customer receives them in order, even
// after an outage. See README.md.
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
	db           string
	orders, rate int
	down, lease  time.Duration
	keep         bool // do not remove the database at the end
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal kills the program
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run returns the exit code: 1 if the run fails or a webhook is out of order, 2 for invalid flags.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	c, err := parseFlags(args, stderr)
	if err != nil {
		return 2
	}
	if err := serve(ctx, c, stdout); err != nil {
		fmt.Fprintln(stderr, "relay:", err)
		return 1
	}
	return 0
}

func parseFlags(args []string, stderr io.Writer) (config, error) {
	var c config
	f := flag.NewFlagSet("relay", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&c.db, "db", "", "keep the database in this `file`, and the logs of the customers next to it (default: in the temporary directory, removed when all webhooks have arrived)")
	f.IntVar(&c.orders, "orders", 400, "total number of orders, including earlier runs")
	f.IntVar(&c.rate, "rate", 80, "orders per second; 0 for no limit")
	f.DurationVar(&c.down, "down", 2500*time.Millisecond, "outage of the endpoint of "+unreliable+", starting after a second")
	f.DurationVar(&c.lease, "lease", 5*time.Second, "lease of messages; those of a killed process wait this long")
	if err := f.Parse(args); err != nil {
		return c, err
	}
	if c.orders < 0 || c.rate < 0 || c.down < 0 || c.lease < time.Millisecond {
		err := errors.New("-orders, -rate and -down must not be negative, and -lease must be at least 1ms")
		fmt.Fprintln(stderr, "relay:", err)
		return c, err
	}
	c.keep = c.db != ""
	if !c.keep { // a fixed path lets a run continue after a kill
		c.db = filepath.Join(os.TempDir(), "honker-relay", "relay.db")
	}
	return c, nil
}

// serve runs the shop until all webhooks have arrived or ctx is done, and prints the results.
func serve(ctx context.Context, c config, stdout io.Writer) error {
	if err := os.MkdirAll(filepath.Dir(c.db), 0o755); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "The database is %s.\n\n", c.db)
	s, err := open(ctx, c, stdout)
	if err != nil {
		return err
	}
	all, err := s.serve(ctx)
	if err := errors.Join(err, s.close()); err != nil {
		return err // keep the database as evidence
	}
	if all && !c.keep {
		return os.RemoveAll(filepath.Dir(c.db))
	}
	return nil
}
