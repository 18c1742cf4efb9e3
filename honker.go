package honker

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/honker-go/honker/internal/contain"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/presence"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/traffic"
	"github.com/honker-go/honker/internal/wake"
	"github.com/honker-go/honker/internal/worker"
	"github.com/honker-go/honker/observe"
)

// Durability selects the commits that survive a power cut.
type Durability int

const (
	// Normal: a commit survives the death of any process. A power cut may lose the last commits, but never damages the
	// file.
	Normal Durability = iota
	// Full: a commit also survives a power cut, if the disk honors syncs. Each commit waits for the disk; concurrent
	// plain verbs share commits.
	Full
)

// Options configures a DB. The zero value of a field means its default.
type Options struct {
	// Logger receives failures; nil means slog.Default(). A panic of its handler is written to standard error, once.
	Logger *slog.Logger
	// Observer receives events of the DB; nil for none.
	Observer *observe.Observer
	// Durability is Normal by default, which sets synchronous=NORMAL. Full sets synchronous=FULL.
	Durability Durability
	// BusyTimeout is how long a write waits for the writer; default 5s.
	BusyTimeout time.Duration
	// Readers is the maximum number of concurrent reads by honker, and of idle connections kept by SQL; default 8.
	Readers int
	// PollInterval is the interval between checks for commits of other processes where the system gives no notice of
	// them. On a quiet file it grows up to 100ms. The default is 1ms.
	PollInterval time.Duration
	// MaxPayload is the maximum size of a payload in bytes; default 1 MiB.
	MaxPayload int
	// CountLimit is the value at which each number of QueueStats stops counting, see Count.More; default 100,000.
	CountLimit int

	// Codec transforms the payloads of jobs on their way into the file and back. It applies to [Queue], [Outbox],
	// [Schedule] and package dispatch; nil means none. A [JobInfo] contains the payload as stored; the Args of a [Job],
	// and [Args], are the enqueued values. Events of streams, notifications, messages of a relay, results, errors, keys
	// and unique keys are not transformed.
	Codec Codec

	// ReadOnly opens the file for reading only: a copy, a snapshot, a file without write permission, or a file that is
	// in use. The file must exist and have this version's schema; an older schema is [ErrUnsupported]. Reads and waits
	// work, including [DB.Listen], [Stream.Tail] and [WaitResult]. Every verb that may write returns [ErrReadOnly], even
	// if there is nothing to write.
	//
	// A file in use has a log next to it (-wal), and both are read. A file without a log is not in use by any process.
	// It is read without creating files, so it may be on a read-only medium. Once a process begins to write to such a
	// file, verbs return [ErrDatabaseReplaced]: close the DB and open it again.
	ReadOnly bool

	// NotificationTTL is the age at which Maintain deletes notifications; 0 keeps them all.
	NotificationTTL time.Duration
	// WALLimit is the size in bytes above which Maintain truncates the write-ahead log. The default is 64 MiB; if it is
	// negative, Maintain never truncates the log.
	WALLimit int64

	// OnConnect is called for each new connection of the DB, of [Connector] and of [DB.SQL], after honker has set it
	// up. Use it for a pragma, a temporary table, an attached file or a hook. If it returns an error, the connect fails.
	//
	// conn is the driver's own connection. It implements driver.ExecerContext and driver.QueryerContext, and with
	// modernc.org/sqlite also sqlite.HookRegisterer. Statements run on it at once, bypassing the gate of writers, and
	// do not wake waiters. Therefore OnConnect must not write to the file, use a verb of the DB, or leave a transaction
	// open. The connection that watches for commits does not call OnConnect. [Attach] ignores it, because its pool has
	// connections already.
	OnConnect func(ctx context.Context, conn driver.Conn) error

	// Headers returns headers to add to the jobs of an enqueue, such as a trace context or a tenant. Every enqueue of
	// the DB, including those of an [Outbox], calls it with its ctx, in the caller's goroutine and before anything is
	// written. It must not use the DB. A nil or empty map adds no headers; too many headers fail the enqueue. The option
	// [Headers] overrides headers with the same name. Jobs of a schedule get headers with the ctx of Tick, Trigger or
	// Run. Events of a [Stream] have no headers.
	Headers func(ctx context.Context) map[string]string

	// NoTraffic excludes the jobs of this DB from the per-minute numbers that are kept in the file, and saves the small
	// writes for them. See Traffic of package admin.
	NoTraffic bool

	// LegacyMessages supports programs that share the file and listen to the channels honker:<queue> and
	// honker:stream:<topic>. Each job that is added or retried, and each event, then also sends the message that honker
	// up to 0.2.4 sends, in the same transaction: the word new, which is not JSON. Workers do not need it, in any
	// binding. The messages take up space until [DB.PruneNotifications], so set NotificationTTL. Writes of other DBs and
	// bindings do not send these messages. [Attach] returns [ErrUnsupported] with this option, since the connections
	// belong to the application.
	LegacyMessages bool

	// NoFileNotices polls the file instead of relying on notices of the operating system. Use it for filesystems
	// without such notices, and for testing/synctest. A bubble of testing/synctest does not see the notices, so Open and
	// Attach return [ErrUnsupported] in a bubble unless NoFileNotices is set. Also set a long PollInterval there, and
	// open the DB inside the bubble, as package honkertest does.
	NoFileNotices bool
	// PosixLocks keeps POSIX record locks for this process. By default honker switches the driver to Linux OFD locks
	// before the first connection, because POSIX locks vanish when any code in this process opens and closes the
	// database file.
	PosixLocks bool
	// AnyFilesystem allows network filesystems and folders that a virtual machine shares with its host. Without it they
	// are refused, because their locks and shared memory lose data. Filesystems that may be unsafe, such as FUSE and
	// cluster filesystems, are not refused; a warning is logged. The check exists only on Linux.
	AnyFilesystem bool
}

// withDefaults validates the options and fills in the defaults.
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
	out.Logger = contain.Logger(out.Logger)
	out.Observer = contain.Observer(out.Observer, out.Logger)
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
		return fmt.Errorf("%w: unknown Durability %d", ErrInvalid, o.Durability)
	}
	if o.Readers < 0 || o.MaxPayload < 0 || o.CountLimit < 0 {
		return fmt.Errorf("%w: Readers, MaxPayload and CountLimit must not be negative", ErrInvalid)
	}
	return errors.Join(engine.NotNegative("BusyTimeout", o.BusyTimeout), engine.NotNegative("PollInterval", o.PollInterval),
		engine.NotNegative("NotificationTTL", o.NotificationTTL))
}

// refuseBubble rejects options that would hang inside a testing/synctest bubble. Time in a bubble passes only while all of
// its goroutines wait for each other, and a notice of the system comes from outside.
func (o *Options) refuseBubble() error {
	if o.NoFileNotices || !wake.InBubble() {
		return nil
	}
	return fmt.Errorf("%w: file notices keep the time of a testing/synctest bubble from passing: "+
		"open the DB with package honkertest, or set NoFileNotices and a PollInterval of an hour", ErrUnsupported)
}

// DB is an open SQLite file with its queues, streams, locks and schedules. It is safe for concurrent use. Open a single DB
// per file and process, and Close it at the end.
type DB struct {
	pool     func() *sql.DB // opens the pool of the application on its first call
	opts     Options
	traffic  *traffic.Meter     // nil if traffic is not counted
	presence *presence.Register // nil if the DB is read-only and so has no workers
	engine   *engine.Engine
	handoffs worker.Handoffs // workers of this DB that wait for a job
	running  worker.Running  // every running Work of this DB

	// waiting serializes the goroutines of this process that wait for the same lock or rate limit. They check the file
	// in the order of their arrival.
	waiting wake.KeyedMutex

	otherLimits sync.Map // names of rate limits for which another handle allows more
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

// newDB returns a DB for a backend. pool returns the pool of the application; the notifier queries looks. newDB starts no
// goroutine.
func newDB(o Options, b engine.Backend, s engine.Stores, pool func() *sql.DB, looks *sql.DB) *DB {
	db := &DB{pool: pool, opts: o}
	var piggybacks []engine.Piggyback
	if !o.NoTraffic && !o.ReadOnly {
		db.traffic = traffic.NewMeter(s.Minutes, func() { db.engine.WritePiggyback(context.Background(), db.traffic) })
		piggybacks = append(piggybacks, db.traffic)
	}
	if !o.ReadOnly {
		db.presence = presence.NewRegister(s.Workers, func() { db.engine.FlushPiggyback(db.presence) })
		piggybacks = append(piggybacks, db.presence)
	}
	db.engine = engine.New(b, engine.Config{
		Stores:     s,
		Looks:      looks,
		Logger:     o.Logger,
		MaxPayload: o.MaxPayload,
		Codec:      o.Codec,
		CountLimit: o.CountLimit,
		WALLimit:   o.WALLimit,
		ReadOnly:   o.ReadOnly,
		Woke:       woke(o.Observer),
		Piggybacks: piggybacks,
		Observer:   o.Observer,
	})
	return db
}

// mustExist panics if db is nil, naming the function that was called. A nil pointer would otherwise fail later, far away
// from the mistake.
func (db *DB) mustExist(in string) {
	if db == nil {
		panic("honker: " + in + ": nil *DB")
	}
}

// encode returns the JSON text that is stored for a payload.
func (db *DB) encode(v any) (string, error) { return engine.Encode(v, db.opts.MaxPayload) }

// SQL returns the pool for the application's own statements and transactions.
//
// BeginTx waits its turn among the writing transactions of this process and begins IMMEDIATE. With
// &sql.TxOptions{ReadOnly: true} it begins a deferred read snapshot instead, which cannot write. Inside a transaction,
// the ctx of a statement does not interrupt it; the end of the ctx of BeginTx rolls back the whole transaction. COMMIT or
// ROLLBACK as text in a sql.Tx is [ErrInvalid], and the transaction can then only be rolled back. The rows of a statement
// that writes, such as INSERT … RETURNING, are read to the end before the first row is returned. Prepared statements are
// cached for later uses.
//
// The number of connections is unlimited, and up to Readers+1 idle connections stay open. Use SetMaxOpenConns and the
// other methods of sql.DB to change this. [DB.Close] closes the pool, unless the pool was attached.
//
// The connections provide honker's SQL functions, such as honker_enqueue and notify, with the names, arguments and results
// of the other bindings; docs/sql.md lists them. They also work in triggers. An attached pool has the functions of its own
// driver.
func (db *DB) SQL() *sql.DB { return db.pool() }

// Close ends all waits and loops and lets Work drain. It returns when every goroutine of the library has ended. Later calls
// have no effect. A handler must not call Close, because it would wait for itself.
func (db *DB) Close() error { return fail("close", "", db.engine.Close()) }

// Check verifies the file. It runs SQLite's integrity check and then checks honker's own invariants, for example that a
// job is either live or dead. It reads the whole file and is meant for tests and operators. If the file is broken, Check
// returns a [*BrokenError] that lists the violations.
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
