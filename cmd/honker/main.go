// Command honker inspects and manages the queues, jobs and dead letters in a honker file. It needs only the file: no
// daemon, no connection.
//
//	honker status -f app.db
//	honker dead groups
//	honker dead requeue --group 3f2a --spread 10m
//
// See docs/guide/cli.md for the guide.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() { os.Exit(mainCode()) }

func mainCode() int {
	// If SIGPIPE is caught, writing to a closed output returns an error, so that the file is still closed properly.
	// Ignoring the signal isn't an option, because commands started by work and lock run would inherit the setting.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal then ends the process
	return run(ctx, os.Args[1:], stdConsole())
}
