package honker

import (
	"context"
	"database/sql"
	"database/sql/driver"
	_ "embed"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"sync"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/presence"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/store"
	"github.com/honker-go/honker/internal/traffic"
	"github.com/honker-go/honker/internal/wake"
	"github.com/honker-go/honker/internal/watch"
	"github.com/honker-go/honker/internal/worker"
)

//go:embed schema.sql
var schema string

// Durability says what survives a power cut.
type Durability int

const (
	// Normal: a commit survives the death of any process. A power cut may take the
	// last commits, never the file's consistency.
	Normal Durability = iota
	// Full: a commit survives a power cut too, on a disk that tells the truth. Each
	// commit waits for the disk; concurrent plain verbs share commits.
	Full
)

// Options of a DB. The zero value of a field means its default.
type Options struct {
	Logger       *slog.Logger  // told of failures; nil: slog.Default(); a panic of its handler is written to the standard error, once
	Observer     *Observer     // nil: none
	Durability   Durability    // Normal (default): synchronous=NORMAL; Full: synchronous=FULL
	BusyTimeout  time.Duration // how long a write waits for the writer; default 5s
	Readers      int           // how many of honker's reads run at a time, and how many idle connections SQL keeps; default 8
	PollInterval time.Duration // between looks for commits of other processes where the system gives no notice, up to 100ms on a quiet file; default 1ms
	MaxPayload   int           // the largest payload in bytes; default 1 MiB
	CountLimit   int           // how far each number of QueueStats is counted, see Count.More; default 100,000

	// Codec changes the payloads of jobs on their way into the file and back: those of [Queue], [Outbox],
	// [Schedule] and package dispatch; nil: none. A [JobInfo] shows a payload as it is stored; the Args of a
	// [Job], and [Args], are what was enqueued. Events of streams, notifications, messages of a relay,
	// results, errors, keys and unique keys stay as they are.
	Codec Codec

	// ReadOnly is for looking: at a copy, a snapshot, a file that may not be written, or one that is in
	// use. Nothing is written, and the file must exist and have this version's schema: an older one
	// is [ErrUnsupported]. What reads and waits works, [DB.Listen], [Stream.Tail] and [WaitResult] too; each
	// verb that may write is [ErrReadOnly], also where it would find nothing to do.
	//
	// A file in use has a log beside it (-wal), which is read with it. A file without one is in use by no
	// process: no file is made to read it, so a read-only medium will do. Once a process begins to write to
	// it, it is [ErrDatabaseReplaced]: close the DB, and open it again.
	ReadOnly bool

	NotificationTTL time.Duration // Maintain deletes notifications that are older; 0: none
	WALLimit        int64         // Maintain truncates a write-ahead log of more bytes; default 64 MiB; negative: never

	// OnConnect is called for each new connection of the DB, and of [Connector] and
	// [DB.SQL], after honker has set it up: for a pragma, a temporary table, an attached
	// file, a hook. Its error fails the connect. conn is the driver's own connection, a
	// driver.ExecerContext and driver.QueryerContext, and with modernc.org/sqlite a
	// sqlite.HookRegisterer: statements run on it at once, past the gate of writers and
	// unseen by waiters. So write nothing to the file there, use no verb of the DB, and
	// leave no transaction open. The connection that watches for commits is left out.
	// [Attach] ignores it: its pool has connections already.
	OnConnect func(ctx context.Context, conn driver.Conn) error

	// Headers is called by each enqueue of the DB, also of a [Outbox], with the ctx of that call, and what it
	// returns is added to the headers of the jobs: a trace context, a tenant. See the option [Headers], which
	// counts where both have a name. It is called in the caller's goroutine, before anything is written, and must
	// not use the DB; nil and empty are no headers, and too many are the enqueue's error. Jobs of a
	// schedule get them with the ctx of Tick, Trigger or Run. Events of a [Stream] have no place for headers.
	Headers func(ctx context.Context) map[string]string

	// NoTraffic leaves the jobs of this DB out of the numbers of each minute that are kept in the file,
	// and saves the small writes for them: see Traffic of package admin.
	NoTraffic bool

	// LegacyMessages is for files that programs share which listen to the channels honker:<queue> and
	// honker:stream:<topic>. With it each job that is added or retried, and each event, sends the message
	// that honker up to 0.2.4 sends: the word new, which is not JSON, in the same transaction. Workers of no
	// binding need it. The messages take room until [DB.PruneNotifications], so set NotificationTTL. What other
	// DBs and bindings write sends none by it. [Attach] refuses it with [ErrUnsupported], since the connections are the
	// application's.
	LegacyMessages bool

	// NoFileNotices polls instead of being told by the operating system that the file
	// was written. For filesystems without such notices, and for testing/synctest. Its
	// bubbles do not know of them, so there Open and Attach are [ErrUnsupported] without it: set a
	// long PollInterval too, and open the DB inside of the bubble, as package honkertest does.
	NoFileNotices bool
	// PosixLocks leaves the process on POSIX record locks. By default honker switches
	// the driver to Linux OFD locks before the first connection: POSIX locks vanish
	// when any code in this process opens and closes the database file.
	PosixLocks bool
	// AnyFilesystem does not refuse network filesystems and folders that a virtual
	// machine shares with its host. Their locks and shared memory lose data. Filesystems
	// of which that is not certain, such as FUSE and those of clusters, are not refused:
	// a warning is logged. Other systems than Linux are not asked.
	AnyFilesystem bool
}

// withDefaults is the one place where defaults exist.
func (o *Options) withDefaults() (Options, error) {
	var out Options
	if o != nil {
		out = *o
	}
	if err := out.validate(); err != nil {
		return out, err
	}
	if out.Logger == nil {
		out.Logger = slog.Default()
	}
	out.Logger = engine.ContainedLogger(out.Logger)
	out.Observer = out.Observer.contained(out.Logger)
	if out.BusyTimeout == 0 {
		out.BusyTimeout = 5 * time.Second
	}
	if out.Readers == 0 {
		out.Readers = 8
	}
	if out.PollInterval == 0 {
		out.PollInterval = time.Millisecond
	}
	if out.MaxPayload == 0 {
		out.MaxPayload = 1 << 20
	}
	if out.CountLimit == 0 {
		out.CountLimit = 100_000
	}
	if out.WALLimit == 0 {
		out.WALLimit = 64 << 20
	}
	return out, nil
}

func (o *Options) validate() error {
	if o.Durability != Normal && o.Durability != Full {
		return fmt.Errorf("%w: Durability %d", ErrInvalid, o.Durability)
	}
	if o.Readers < 0 || o.MaxPayload < 0 || o.CountLimit < 0 {
		return fmt.Errorf("%w: negative Readers, MaxPayload or CountLimit", ErrInvalid)
	}
	return errors.Join(engine.NotNegative("BusyTimeout", o.BusyTimeout), engine.NotNegative("PollInterval", o.PollInterval),
		engine.NotNegative("NotificationTTL", o.NotificationTTL))
}

// refuseBubble refuses what would stand still without a word: in a bubble of testing/synctest time
// passes when all goroutines wait for each other, and an event of the system comes from outside.
func (o *Options) refuseBubble() error {
	if o.NoFileNotices || !watch.InBubble() {
		return nil
	}
	return fmt.Errorf("%w: in a bubble of testing/synctest the notices of the operating system keep time from passing: "+
		"open the DB with package honkertest, or set NoFileNotices and a PollInterval of an hour", ErrUnsupported)
}

// DB is one SQLite file with its queues, streams, locks and schedules. It is safe for
// concurrent use. Open one per file and process, and Close it at the end.
type DB struct {
	stores   // the statements, by noun
	opts     Options
	traffic  *traffic.Meter     // nil: not counted
	presence *presence.Register // nil: a DB that may not write has no workers
	engine   *engine.Engine
	handoffs worker.Handoffs // the workers of this DB that wait for a job
	running  worker.Running  // each Work of this DB

	// waiting has the goroutines of this process that wait for one lock, or one rate limit,
	// look at the file one at a time and in order of arrival.
	waiting wake.KeyedMutex

	otherLimits sync.Map // names of rate limits of which another handle lets more through
}

// stores are the statements that the verbs run. Each interface is declared beside the verbs
// that use it; package store implements them for SQLite.
type stores struct {
	jobs          jobStore
	stats         engine.StatsStore
	batches       batchStore
	pauses        pauseStore
	limits        limitStore
	results       resultStore
	notifications notificationStore
	streams       streamStore
	consumers     consumerStore
	retentions    retentionStore
	groups        groupStore
	locks         lockStore
	rateLimits    rateLimitStore
	schedules     scheduleStore
	relays        func(family string) wake.RelayStates // the other statements of a relay are its package's
}

var sqliteStores = stores{
	jobs:          store.Jobs{},
	stats:         store.Jobs{},
	batches:       store.Batches{},
	pauses:        store.Pauses{},
	limits:        store.Limits{},
	results:       store.Results{},
	notifications: store.Notifications{},
	streams:       store.Streams{},
	consumers:     store.Consumers{},
	retentions:    store.Retentions{},
	groups:        store.Groups{},
	locks:         store.Locks{},
	rateLimits:    store.RateLimits{},
	schedules:     store.Schedules{},
	relays:        func(family string) wake.RelayStates { return store.Relays{Family: family} },
}

func init() {
	engine.Register(func(db any) *engine.Engine { return db.(*DB).engine })
	engine.RegisterViews(engine.Views{
		Job:   func(row row.Job, now time.Time, c engine.Codec) any { return infoOf(&row, now, c) },
		Stats: func(row engine.QueueStats) any { return statsOf(row) },
	})
	engine.RegisterPipe(func(ctx context.Context, e *engine.Engine, stream any, consumer string, to engine.Sink) error {
		return stream.(pipeable).pipe(ctx, e, consumer, to)
	})
}

// newDB builds the DB on a backend. It starts nothing.
func newDB(o Options, b engine.Backend, s stores) *DB {
	db := &DB{stores: s, opts: o}
	var riders []engine.Rider
	if !o.NoTraffic && !o.ReadOnly {
		db.traffic = traffic.NewMeter(func() { db.engine.RideAlone(context.Background(), db.traffic) })
		riders = append(riders, db.traffic)
	}
	if !o.ReadOnly {
		db.presence = presence.NewRegister(func() { db.engine.RideLast(db.presence) })
		riders = append(riders, db.presence)
	}
	db.engine = engine.New(b, engine.Config{
		Statements: wake.Statements{
			Jobs: s.jobs, Results: s.results, Notifications: s.notifications, Streams: s.streams,
			Groups: s.groups, Locks: s.locks, Schedules: s.schedules, Relays: s.relays,
		},
		Logger:     o.Logger,
		Stats:      s.stats,
		Pauses:     s.pauses,
		Limits:     s.limits,
		MaxPayload: o.MaxPayload,
		Codec:      o.Codec,
		CountLimit: o.CountLimit,
		WALLimit:   o.WALLimit,
		ReadOnly:   o.ReadOnly,
		Woke:       func(cause string, waiters int) { o.Observer.Woke(Woke{Cause: cause, Waiters: waiters}) },
		Riders:     riders,
		Observe:    o.Observer.observe,
	})
	return db
}

// mustExist says where a nil DB came in: later it would be a nil pointer somewhere inside.
func (db *DB) mustExist(in string) {
	if db == nil {
		panic("honker: " + in + ": nil *DB")
	}
}

// encode turns a payload into the JSON text that is stored.
func (db *DB) encode(v any) (string, error) { return engine.Encode(v, db.opts.MaxPayload) }

// SQL returns the pool for the application's own statements and transactions.
//
// BeginTx waits for the writer among this process's transactions and begins IMMEDIATE;
// &sql.TxOptions{ReadOnly: true} begins a deferred read snapshot instead, which refuses to
// write. Inside a transaction a statement is not interrupted by its ctx; the end of the ctx
// of BeginTx rolls the transaction back as a whole. COMMIT or ROLLBACK as text in a sql.Tx is
// [ErrInvalid], and the transaction can only be rolled back then. The rows of a statement
// that writes, such as INSERT … RETURNING, are read to their end before the first is handed
// out. Statements stay prepared from one use to the next.
//
// The number of connections has no bound, and up to Readers+1 stay open while they are idle:
// SetMaxOpenConns and its like change that. [DB.Close] closes the pool, unless it was attached.
//
// Its connections have honker's SQL functions, such as honker_enqueue and notify, by the
// names and with the arguments and results of other bindings: docs/sql.md lists them. They
// work in triggers too. An attached pool has the functions of its own driver.
func (db *DB) SQL() *sql.DB { return db.engine.Backend.SQL() }

// Close ends every wait and every loop, lets Work drain, and returns when every
// goroutine of the library has ended. Later calls do nothing. A handler must not call
// it: it would wait for itself.
func (db *DB) Close() error { return fail("close", "", db.engine.Close()) }

// Check verifies the file: SQLite's integrity check, then honker's own invariants,
// such as that a job is either live or dead. It reads everything: for tests and
// operators. nil means sound; a [*BrokenError] lists what is broken.
func (db *DB) Check(ctx context.Context) error {
	name := db.engine.Backend.Name()
	if err := db.engine.Usable(ctx, ""); err != nil {
		return fail("check", name, err)
	}
	broken, err := db.engine.Backend.Check(ctx)
	if err != nil {
		return fail("check", name, err)
	}
	if len(broken) > 0 {
		return fail("check", name, &BrokenError{Rules: broken})
	}
	return nil
}

// Updates yields one tick after each observed commit to the file, by any process;
// commits in quick succession may share one. The first tick comes at once, so that a
// body that looks at the file misses nothing. It waits without polling and ends silently
// when ctx ends. An error, [ErrClosed] or [ErrDatabaseReplaced], is yielded once and is
// the last.
func (db *DB) Updates(ctx context.Context) iter.Seq2[struct{}, error] {
	return func(yield func(struct{}, error) bool) {
		if err := db.engine.RefuseInTx(ctx, ""); err != nil {
			yield(struct{}{}, fail("updates", "", err))
			return
		}
		w := db.engine.Notifier.Subscribe(wake.Key{Kind: wake.AnyCommit})
		defer w.Close()
		w.Wake() // a look of the caller's before the subscription may have missed a commit
		for {
			err := w.Wait(ctx, wake.Forever)
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				yield(struct{}{}, fail("updates", "", err))
				return
			}
			if !yield(struct{}{}, nil) {
				return
			}
		}
	}
}
