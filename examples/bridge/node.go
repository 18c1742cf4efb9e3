package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"
)

// nodeCommand makes this program a node.
const nodeCommand = "node"

// nodeConfig is what a node is told.
type nodeConfig struct {
	name, dir, socket, secret string
	orders, rate              int
	lease                     time.Duration
}

// order is what crosses the bridge.
type order struct {
	ID       int64  `json:"id"`
	Customer string `json:"customer"`
	Number   int64  `json:"number"` // of the customer's orders
	Cents    int64  `json:"cents"`
}

// runNode is the process of a node, until stdin ends: its parent has told it to end, or is dead.
func runNode(ctx context.Context, args []string, stdin io.Reader, stderr io.Writer) int {
	ctx, end := context.WithCancel(ctx)
	defer end()
	go func() {
		_, _ = io.Copy(io.Discard, stdin)
		end()
	}()
	c := nodeConfig{secret: os.Getenv(secretVar)}
	f := flag.NewFlagSet("bridge "+nodeCommand, flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&c.name, "name", "", "")
	f.StringVar(&c.dir, "dir", "", "")
	f.StringVar(&c.socket, "socket", "", "")
	f.IntVar(&c.orders, "orders", 0, "")
	f.IntVar(&c.rate, "rate", 0, "")
	f.DurationVar(&c.lease, "lease", 0, "")
	if f.Parse(args) != nil {
		return 2
	}
	run := map[string]func(context.Context, nodeConfig) error{shopNode: runShop, warehouseNode: runWarehouse}[c.name]
	if run == nil {
		fmt.Fprintf(stderr, "bridge: there is no node %q\n", c.name)
		return 2
	}
	if err := run(ctx, c); err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", c.name, err)
		return 1
	}
	return 0
}

// quiet logs errors only: that the other node is down shows in the output, and needs no line in the log.
func quiet() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
}

// unlessEnded is err, unless it comes of the end of ctx.
func unlessEnded(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil
	}
	return err
}
