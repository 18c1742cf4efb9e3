// Package relay delivers messages from the database in order, for example as webhooks for each
// customer, as a change feed, or to a message broker.
//
// A message's key selects its partition. Within a partition, messages are handled strictly in commit
// order, by one handler at a time across all processes. Partitions are independent of each other.
// Delivery is at least once: a handler finishes its message by returning nil, and [Reject] turns the
// message into a dead letter. After any other error the partition waits and tries the message again.
// With [Queue.HandleTx], a handler's writes to the database take effect exactly once.
//
//	r := relay.New(db, nil)
//	hooks := r.Queue("webhooks", 16)
//	hooks.Handle(func(ctx context.Context, m *relay.Message) error { return post(ctx, m) })
//	go r.Run(ctx)
//	...
//	db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
//		// the change and its message commit together
//		_, err := hooks.SendTx(ctx, tx, relay.Outgoing{Key: customer, Payload: body})
//		return err
//	})
//
// A relay's first write creates its tables. Their names begin with _honkerx_relay_, and no other
// honker binding uses them. [honker.Outbox] is a simpler outbox shared by all bindings; it does not
// preserve order.
package relay

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"sync"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// ErrPartitions is returned if a queue has a different number of partitions in the database than in
// its handle. The error text contains both numbers. Nothing was changed.
var ErrPartitions = errors.New("the number of partitions differs")

// ErrStuck is returned by [Relay.Run] when a handler is still running after its context has ended.
// The error text names the partition. Messages that the handler has not finished are delivered again.
var ErrStuck = errors.New("a handler is still running after its context was cancelled")

// Options configures a Relay. The zero value of a field selects its default.
type Options struct {
	Profile     Profile       // defaults for Batch, RetryBase and RetryMax, which handler options override per queue; default Balanced
	Processors  int           // maximum batches handled at once, across all queues (see [Relay.Run]); default 4, and up to 64 while handlers are slow
	Batch       int           // maximum messages per batch; default by Profile
	RetryBase   time.Duration // pause after the first failure, doubled after each consecutive one; default by Profile
	RetryMax    time.Duration // maximum pause after failures; default by Profile
	VacuumEvery time.Duration // interval between sweeps of finished messages that are still in the database; default 1h
	MaxPayload  int           // maximum payload size in bytes; default 64 KiB
	Family      string        // name of a separate set of tables: a lowercase letter, then up to 31 of a-z, 0-9 and _; default none
	Observer    *Observer     // may be nil
}

// Relay delivers the messages of its queues to their handlers. It is safe for concurrent use.
type Relay struct {
	engine *engine.Engine
	opts   Options
	err    error // first error in the options, returned by every method
	spare  int   // maximum number of slow batches in addition to Processors
	store  engine.RelayStore

	mu       sync.Mutex
	known    map[string]int  // partitions by queue, for queues known to be in the database
	sent     map[string]bool // queues with a committed SendTx
	handlers []*handler
	stuck    map[row.RelayPartition]*active // handlers, of any Run, that are still running after their lease
}

// New returns a relay on db. It does not access the database. If an option is invalid, the first
// method called returns [honker.ErrInvalid]. A nil opts selects the defaults.
func New(db *honker.DB, opts *Options) *Relay {
	r := &Relay{engine: engine.Of(db), known: make(map[string]int), sent: make(map[string]bool), stuck: make(map[row.RelayPartition]*active)}
	if opts == nil || opts.Processors == 0 {
		r.spare = mostSlow
	}
	r.opts, r.err = opts.withDefaults()
	r.opts.Observer = r.opts.Observer.contained(r.engine.Logger)
	r.store = r.engine.Stores.Relays.Family(r.opts.Family)
	return r
}

// family matches a valid family. Table names contain the family, and SQLite ignores case in table
// names, so uppercase letters are not allowed.
var family = regexp.MustCompile(`^[a-z][a-z0-9_]{0,31}$`)

func (o *Options) withDefaults() (Options, error) {
	var out Options
	if o != nil {
		out = *o
	}
	if out.Family != "" && !family.MatchString(out.Family) {
		return out, fmt.Errorf("%w: family %q must be a lowercase letter followed by up to 31 of a-z, 0-9 and _", engine.ErrInvalid, out.Family)
	}
	err := errors.Join(
		out.Profile.check(),
		notNegative("Processors", out.Processors), notNegative("MaxPayload", out.MaxPayload),
		engine.NotNegative("VacuumEvery", out.VacuumEvery),
	)
	if err != nil {
		return out, err
	}
	t, err := out.tuning().over(profiles[out.Profile])
	out.Batch, out.RetryBase, out.RetryMax = t.batch, t.retryBase, t.retryMax
	out.Processors = cmp.Or(out.Processors, defaultProcessors)
	out.VacuumEvery = cmp.Or(out.VacuumEvery, time.Hour)
	out.MaxPayload = cmp.Or(out.MaxPayload, 64<<10)
	return out, err
}

func notNegative(what string, n int) error {
	if n < 0 {
		return fmt.Errorf("%w: negative %s %d", engine.ErrInvalid, what, n)
	}
	return nil
}
