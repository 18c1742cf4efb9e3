// Bridge moves orders from a shop to a warehouse. Each is a process with its own database. It kills
// both repeatedly and shows that their books balance in the end. See README.md.
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
	dir          string
	orders, rate int
	kills        int
	lease        time.Duration
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal kills the program
	if len(os.Args) > 1 && os.Args[1] == nodeCommand {
		os.Exit(runNode(ctx, os.Args[2:], os.Stdin, os.Stderr))
	}
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run returns the exit code: 1 if the run fails or the books do not balance, 2 for invalid flags.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	c, err := parseFlags(args, stderr)
	if err != nil {
		return 2
	}
	if err := watch(ctx, c, stdout); err != nil {
		fmt.Fprintln(stderr, "bridge:", err)
		return 1
	}
	return 0
}

func parseFlags(args []string, stderr io.Writer) (config, error) {
	var c config
	f := flag.NewFlagSet("bridge", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&c.dir, "dir", "", "keep the two databases in this `directory` (default: a temporary one, removed in the end)")
	f.IntVar(&c.orders, "orders", 600, "total number of orders, including earlier runs")
	f.IntVar(&c.rate, "rate", 80, "orders per second; 0 for no limit")
	f.IntVar(&c.kills, "kills", 10, "number of times that a process is killed")
	f.DurationVar(&c.lease, "lease", time.Second, "lease of messages and jobs; those of a killed process wait this long")
	if err := f.Parse(args); err != nil {
		return c, err
	}
	if c.orders < 1 || c.rate < 0 || c.kills < 0 || c.lease < 100*time.Millisecond {
		err := errors.New("-orders must be positive, -rate and -kills must not be negative, and -lease must be at least 100ms")
		fmt.Fprintln(stderr, "bridge:", err)
		return c, err
	}
	return c, nil
}

// watch runs the nodes, kills them along the way and compares their books.
func watch(ctx context.Context, c config, stdout io.Writer) (err error) {
	if c.dir == "" {
		if c.dir, err = os.MkdirTemp("", "honker-bridge-"); err != nil {
			return err
		}
		defer os.RemoveAll(c.dir)
	} else if err := os.MkdirAll(c.dir, 0o755); err != nil {
		return err
	}
	sockets, err := os.MkdirTemp("", "bridge") // the path of a Unix socket must be short
	if err != nil {
		return err
	}
	defer os.RemoveAll(sockets)
	b, err := open(ctx, c, filepath.Join(sockets, "s"), stdout)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	began := time.Now()
	if err := b.run(ctx); err != nil {
		return err
	}
	books, err := b.readBooks(ctx)
	if err != nil {
		return err
	}
	err = books.print(stdout)
	fmt.Fprintf(stdout, "It took %v.\n", time.Since(began).Round(100*time.Millisecond))
	return err
}
