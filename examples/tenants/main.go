// Tenants is a service with three customers on a single database. The first is noisy, the second is
// quiet, and the endpoint of the third fails. It shows and checks how limits protect the customers
// from each other. See README.md.
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
	db    string
	noisy int
	work  time.Duration
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal kills the program
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run returns the exit code: 1 if the run or a check fails, 2 for invalid flags.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	c, err := parseFlags(args, stderr)
	if err != nil {
		return 2
	}
	if err := serve(ctx, c, stdout); err != nil {
		fmt.Fprintln(stderr, "tenants:", err)
		return 1
	}
	return 0
}

func parseFlags(args []string, stderr io.Writer) (config, error) {
	var c config
	f := flag.NewFlagSet("tenants", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&c.db, "db", "", "create the database in this `file`, which must not exist, and keep it (default: in the temporary directory, removed at the end)")
	f.IntVar(&c.noisy, "noisy", 200, "webhooks of the noisy customer")
	f.DurationVar(&c.work, "work", 15*time.Millisecond, "duration of a call")
	if err := f.Parse(args); err != nil {
		return c, err
	}
	if c.noisy < few || c.work < 0 {
		err := fmt.Errorf("-noisy must be at least %d, and -work must not be negative", few)
		fmt.Fprintln(stderr, "tenants:", err)
		return c, err
	}
	return c, nil
}

// serve runs the scenarios and prints the results.
func serve(ctx context.Context, c config, stdout io.Writer) (err error) {
	if c.db == "" {
		dir, err := os.MkdirTemp("", "honker-tenants-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		c.db = filepath.Join(dir, "tenants.db")
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
	for _, scenario := range []func(context.Context) ([]check, error){s.share, s.rate, s.slowDown, s.order, s.batch} {
		checks, err := scenario(ctx)
		if err != nil {
			return err
		}
		all = append(all, checks...)
	}
	err = printChecks(stdout, all)
	fmt.Fprintf(stdout, "It took %v.\n", time.Since(began).Round(100*time.Millisecond))
	return errors.Join(err, s.dbs[0].Check(ctx))
}
