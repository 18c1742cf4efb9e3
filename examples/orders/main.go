// Orders is a small order service on a single SQLite file, or on a PostgreSQL database. It stores each order
// together with a job and prints receipts by working the jobs. See README.md.
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
		fmt.Fprintln(stderr, "orders:", err)
		return 1
	}
	return 0
}

func parseFlags(args []string, stderr io.Writer) (config, error) {
	c := config{input: testdata}
	f := flag.NewFlagSet("orders", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&c.file, "db", "", "keep the database in this `file` (default: a temporary one)")
	f.StringVar(&c.dsn, "dsn", "", "keep orders and jobs in the PostgreSQL database of this `connection string` instead of a file")
	f.StringVar(&c.out, "out", "", "the `folder` of the receipts (default: receipts, beside the file)")
	f.IntVar(&c.workers, "workers", 4, "number of receipts printed concurrently")
	f.IntVar(&c.rate, "rate", 800, "orders per second; 0 for no limit")
	f.DurationVar(&c.lease, "lease", 5*time.Second, "lease of a job; jobs of a killed process wait this long")
	f.BoolVar(&c.workersOnly, "workers-only", false, "read no orders; print the receipts of -db or -dsn until interrupted")
	f.StringVar(&c.ui, "ui", "", "show the dashboard on this `address`, such as :8080, until interrupted (default: none)")
	if err := f.Parse(args); err != nil {
		return c, err
	}
	if err := c.check(); err != nil {
		fmt.Fprintln(stderr, "orders:", err)
		return c, err
	}
	return c, nil
}

func (c config) check() error {
	switch {
	case c.workers < 1 || c.rate < 0 || c.lease <= 0:
		return errors.New("-workers and -lease must be positive, and -rate must not be negative")
	case c.file != "" && c.dsn != "":
		return errors.New("-db and -dsn exclude each other")
	case c.dsn != "" && c.out == "":
		return errors.New("-dsn requires -out, because the receipts of earlier runs must stay")
	case c.workersOnly && c.file+c.dsn == "":
		return errors.New("-workers-only requires -db or -dsn")
	}
	return nil
}

func serve(ctx context.Context, c config, stdout io.Writer) (err error) {
	if c.file+c.dsn == "" {
		dir, err := os.MkdirTemp("", "orders-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		c.file = filepath.Join(dir, "orders.db")
	}
	if c.out == "" {
		c.out = filepath.Join(filepath.Dir(c.file), "receipts")
	}
	s, err := open(ctx, c, stdout)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if c.ui != "" {
		return s.serveAndShow(ctx)
	}
	return s.serve(ctx)
}
