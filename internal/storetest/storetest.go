// Package storetest contains the tests that every database's stores must pass. It states honker's rules without
// reference to a particular database: the order of claims, the fencing of leases, and the effect of a rollback. A
// package that implements engine.Stores calls Run from a test.
package storetest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/engine"
)

// Fixture is an empty database under test.
type Fixture struct {
	Backend engine.Backend
	Stores  engine.Stores

	Resolution time.Duration // of stored times

	// Later means that jobs that wait for others, or for room, are released after the commit that allows it, and not in
	// it. The backend releases them before it reports the commit. The events of dispatch's logs are numbered after the
	// commit, too, by the next publication at the latest.
	Later bool
}

// Run tests a database's stores. It calls open from several goroutines. open must return a new, empty database for each
// call, and close it at the end of the test.
func Run(t *testing.T, open func(t *testing.T) *Fixture) {
	for _, s := range suites {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			s.run(t, open)
		})
	}
}

// suites lists the tests for each kind of object.
var suites = []struct {
	name string
	run  func(t *testing.T, open func(t *testing.T) *Fixture)
}{
	{"Locks", locks},
	{"Relays", relays},
	{"Dispatches", dispatches},
	{"Inboxes", inboxes},
	{"Flows", flows},
	{"Streams", streams},
	{"Consumers", consumers},
	{"Retentions", retentions},
	{"Groups", groups},
	{"Notifications", notifications},
	{"Wakes", wakes},
	{"Operators", operators},
	{"Observing", observing},
	{"Jobs", jobs},
	{"Settlements", settlements},
	{"Links", links},
	{"Batches", batches},
	{"Limits", limits},
	{"Pauses", pauses},
	{"RateLimits", rateLimits},
	{"Schedules", schedules},
	{"Sweeps", sweeps},
}

// start is the time at which tests begin. Stores have no clock, so tests choose the time.
var start = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

// write runs f in a transaction and commits it. If f returns an error, write rolls back and returns the
// error.
func (d *Fixture) write(t *testing.T, f func(ctx context.Context, q engine.Querier) error) error {
	t.Helper()
	return d.Backend.Write(t.Context(), engine.OpFunc(func(ctx context.Context, q engine.Querier, _ time.Time) error { return f(ctx, q) }))
}

// mustWrite is like write, and fails the test on an error.
func (d *Fixture) mustWrite(t *testing.T, f func(ctx context.Context, q engine.Querier) error) {
	t.Helper()
	require.NoError(t, d.write(t, f))
}

// rollBack runs f in a transaction and rolls it back.
func (d *Fixture) rollBack(t *testing.T, f func(ctx context.Context, q engine.Querier) error) {
	t.Helper()
	tx, err := d.Backend.Begin(t.Context())
	require.NoError(t, err)
	defer tx.Close()
	require.NoError(t, f(t.Context(), tx.SQL()))
}

// read runs f on a connection that sees the committed state.
func (d *Fixture) read(t *testing.T, f func(ctx context.Context, q engine.Querier) error) {
	t.Helper()
	require.NoError(t, d.Backend.Read(t.Context(), true, f))
}
