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

// nodeCommand is the first argument that makes this program run as a node.
const nodeCommand = "node"

// nodeConfig holds the flags and the environment of a node.
type nodeConfig struct {
	name, dir, socket, secret string
	orders, rate              int
	lease                     time.Duration
}

// order is the body of a message from the shop to the warehouse.
type order struct {
	ID       int64  `json:"id"`
	Customer string `json:"customer"`
	Number   int64  `json:"number"` // 1, 2, 3 … for each customer
	Cents    int64  `json:"cents"`
}

// runNode runs a node until stdin is closed, which happens when the parent asks it to stop or dies.
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
		fmt.Fprintf(stderr, "bridge: unknown node %q\n", c.name)
		return 2
	}
	if err := run(ctx, c); err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", c.name, err)
		return 1
	}
	return 0
}

// quiet returns a logger for errors only. Failed deliveries to a killed node are expected here.
func quiet() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
}

// unlessEnded returns nil if err is ctx's error, and err otherwise.
func unlessEnded(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil
	}
	return err
}
