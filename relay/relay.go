// Package relay delivers messages out of the file in order: webhooks for each customer, a change
// feed, a message broker.
//
// A message has a partition, by its key. Within a partition messages are handled strictly in the
// order in which they were committed, by one handler at a time over all processes; partitions
// go on independently of each other. A message is delivered at least once: a handler that
// returns nil has finished it, [Reject] makes it a dead letter, and after any other error the
// partition waits and tries again. [Queue.HandleTx] has effects exactly once.
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
// The tables of a relay are this library's own, _honkerx_relay_ in the file, and are made by its
// first write. [honker.Outbox] is honker's simple outbox: without an order, and shared with
// honker's other bindings.
package relay

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"regexp"
	"sync"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/store"
)

//go:embed schema.sql
var schema string

// ErrPartitions reports a queue that has another number of partitions in the file than was asked
// for. The text says both. Nothing was changed.
var ErrPartitions = errors.New("another number of partitions")

// ErrStuck reports a handler that has gone on after its context had ended. It is the error of
// [Relay.Run]. Its text names the partition; nothing was finished on behalf of the handler.
var ErrStuck = errors.New("a handler ignores the end of its context")

// Options of a Relay. The zero value of a field means its default.
type Options struct {
	Profile     Profile       // the defaults of Batch, RetryBase and RetryMax, which options of a handler replace for its queue; default Balanced
	Processors  int           // batches that are handled at once, over all queues, see [Relay.Run]; default 4, and up to 64 while handlers are slow
	Batch       int           // the most messages of a batch; default by Profile
	RetryBase   time.Duration // the pause after a first failure, doubled by each other in a row; default by Profile
	RetryMax    time.Duration // the longest such pause; default by Profile
	VacuumEvery time.Duration // between sweeps of finished messages that are still in the file; default 1h
	MaxPayload  int           // the largest payload in bytes; default 64 KiB
	Family      string        // a separate set of tables: a lower case letter, then up to 31 of a-z, 0-9 and _; default none
	Observer    *Observer     // nil: none
}

// Relay hands the messages of its queues to their handlers. It is safe for concurrent use.
type Relay struct {
	engine *engine.Engine
	opts   Options
	err    error // of a bad option
	spare  int   // how many batches that are slow go on beyond Processors
	store  relayStore

	mu       sync.Mutex
	known    map[string]int  // partitions of the queues that are in the file
	sent     map[string]bool // queues that a SendTx has found or added in a transaction that was committed
	handlers []*handler
	stuck    map[row.RelayPartition]*active // handlers that have outlived their lease, of every Run
}

// relayStore are the statements of a relay. The numbers of the messages come from it.
type relayStore interface {
	Exists(ctx context.Context, q engine.Querier) (bool, error)
	Current(ctx context.Context, q engine.Querier) (bool, error)
	Bootstrap(ctx context.Context, q engine.Querier, ddl string) (changed bool, err error)
	Partitions(ctx context.Context, q engine.Querier, queue string) (int, error)
	Register(ctx context.Context, q engine.Querier, queue string, partitions int, nowMS int64) (found int, added bool, err error)
	Send(ctx context.Context, q engine.Querier, queue string, messages []row.RelayMessage, nowMS int64) ([]int64, error)
	States(ctx context.Context, q engine.Querier, w row.RelayWanted, nowMS int64) ([]row.RelayState, error)
	Take(ctx context.Context, q engine.Querier, w row.RelayWanted, owner string, nowMS int64) (row.RelayTaken, bool, error)
	Read(ctx context.Context, q engine.Querier, p row.RelayPartition, after int64, limit int) ([]row.RelayMessage, error)
	Save(ctx context.Context, q engine.Querier, l row.RelayLease, p row.RelayProgress, nowMS int64) (bool, error)
	Strays(ctx context.Context, q engine.Querier) ([]row.RelayPartition, error)
	Finished(ctx context.Context, q engine.Querier, queue string) (bool, error)
	Vacuum(ctx context.Context, q engine.Querier, queue string, limit int) (int, error)
}

// New returns a relay on db. It touches nothing: a bad option is [honker.ErrInvalid] from the
// first verb. nil opts means defaults.
func New(db *honker.DB, opts *Options) *Relay {
	r := &Relay{engine: engine.Of(db), known: make(map[string]int), sent: make(map[string]bool), stuck: make(map[row.RelayPartition]*active)}
	if opts == nil || opts.Processors == 0 {
		r.spare = mostSlow
	}
	r.opts, r.err = opts.withDefaults()
	r.opts.Observer = r.opts.Observer.contained(r.engine.Logger)
	r.store = store.Relays{Family: r.opts.Family}
	return r
}

// family is what a family may be called. It becomes a part of the names of tables, which do not
// differ by case.
var family = regexp.MustCompile(`^[a-z][a-z0-9_]{0,31}$`)

func (o *Options) withDefaults() (Options, error) {
	var out Options
	if o != nil {
		out = *o
	}
	if out.Family != "" && !family.MatchString(out.Family) {
		return out, fmt.Errorf("%w: family %q: a lower case letter, then up to 31 of a-z, 0-9 and _", engine.ErrInvalid, out.Family)
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
	out.Processors = or(out.Processors, defaultProcessors)
	out.VacuumEvery = or(out.VacuumEvery, time.Hour)
	out.MaxPayload = or(out.MaxPayload, 64<<10)
	return out, err
}

// or is v, or the default of a v that is zero.
func or[V comparable](v, otherwise V) V {
	var zero V
	if v == zero {
		return otherwise
	}
	return v
}

func notNegative(what string, n int) error {
	if n < 0 {
		return fmt.Errorf("%w: negative %s %d", engine.ErrInvalid, what, n)
	}
	return nil
}
