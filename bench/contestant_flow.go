package main

import (
	"context"
	"errors"
	"fmt"
)

// Flows is a file with functions that survive.
type Flows interface {
	// Serve works on runs until ctx is done.
	Serve(ctx context.Context) error
	// Run starts a run of steps and waits until it has ended. If tx is set, each step inserts a receipt and commits it
	// with its result.
	Run(ctx context.Context, id string, steps int, tx bool) error
	// Begin starts a run that waits for a signal.
	Begin(ctx context.Context, id string) error
	Signal(ctx context.Context, id string) error
	// Hold starts a run that does not end.
	Hold(ctx context.Context, id string) error
	Close() error
}

// flowEvents are called by runs of Begin and Hold: when their function begins, and when the signal has come.
type flowEvents struct{ began, resumed func(id string) }

const dbosName = "DBOS"

// flowContestants returns the contestants of the suite flow. They are opened by openFlows.
func flowContestants() []Contestant {
	return []Contestant{
		{Name: ceilingName, About: "an insert of the result in a commit of its own, or with a receipt in one; one connection, statements prepared once"},
		{Name: honkerName, About: "package flow with the defaults, 64 workers"},
		{Name: dbosName, About: "DBOS Transact for Go on SQLite with its defaults; the pool has 8 connections, as it opens itself, and is also its data source", Poll: dbosPoll},
	}
}

// openFlows opens a file of the contestant. A takeover by honker is after the end of a lease.
func (t task) openFlows(ctx context.Context, on flowEvents) (Flows, error) {
	switch t.Contestant {
	case honkerName:
		return openHonkerFlows(ctx, t, on)
	case dbosName:
		return openDBOS(ctx, t, on)
	}
	return openRawFlows(ctx, t)
}

// errOnlySteps is returned by raw, which has no runs.
var errOnlySteps = fmt.Errorf("%w: the driver has no runs", errNA)

// onRaw returns errOnlySteps for raw.
func (t *Turn) onRaw() error {
	if t.Name == ceilingName {
		return errOnlySteps
	}
	return nil
}

// served opens a file and serves its runs until stop is called, which closes it.
func (t task) served(ctx context.Context, on flowEvents) (f Flows, stop func() error, err error) {
	if f, err = t.openFlows(ctx, on); err != nil {
		return nil, nil, err
	}
	serving := background(ctx, f.Serve)
	return f, func() error { return errors.Join(serving(), f.Close()) }, nil
}
