// Command honker looks into a honker file and steers it: queues, jobs, dead letters. It needs no
// daemon and no connection, only the file.
//
//	honker status -f app.db
//	honker dead groups
//	honker dead requeue --group 3f2a --spread 10m
//
// The guide to it is docs/guide/cli.md.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() { os.Exit(mainCode()) }

func mainCode() int {
	// A reader that goes is an error of the write, after which the file is closed. Ignored, the signal would
	// be so in the commands of work and lock run too.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // the second one ends the process
	return run(ctx, os.Args[1:], stdConsole())
}
