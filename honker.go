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

// Durability determines which commits survive a power failure.
type Durability int

const (
	// Normal means that a commit survives the death of any process. A power failure may lose the most recent
	// commits but never corrupts the file.
	Normal Durability = iota
	// Full means that a commit also survives a power failure, if the disk honors syncs. Each commit waits for
	// the disk. Concurrent plain verbs share commits.
	Full
)

// Options configures a DB. The zero value of a field means its default.
type Options struct {
	// Logger receives failures; nil means slog.Default(). If its handler panics, the panic is written to
	// standard error once.
	Logger *slog.Logger
	// Observer is notified of events in the DB; nil means no observer.
	Observer *observe.Observer
	// Durability is Normal by default, which sets synchronous=NORMAL. Full sets synchronous=FULL.
	Durability Durability
	// BusyTimeout is how long a write waits for the writer; default 5s.
	BusyTimeout time.Duration
	// Readers limits honker's concurrent reads and the idle connections kept by SQL; default 8.
	Readers int
	// IdleConns is the number of open connections above which quiet files close theirs; default 128. It counts the
	// connections of all files that this process has opened with [Open], and those of their [DB.SQL]. A file is quiet
	// if none of its connections has been used for five to ten seconds. A file that has hardly been used yet is quiet at
	// once while many connections are opened. The file that was used last closes its connections last. Waiting
	// goroutines are woken as before, and the next use opens a connection. Transactions, rows, a sql.Conn and
	// prepared statements keep theirs open. [Attach] and [Connector] ignore IdleConns.
	IdleConns int
	// PollInterval is how often honker checks for commits by other processes on systems that do not notify it of
	// them. The interval grows up to 100ms while the file is quiet. The default is 1ms.
	PollInterval time.Duration
	// MaxPayload is the maximum size of a payload in bytes; default 1 MiB.
	MaxPayload int
	// CountLimit is the value at which the counts in QueueStats stop (see Count.More); default 100,000.
	CountLimit int

	// Codec transforms job payloads when they are written to the file and read back. It applies to [Queue],
	// [Outbox], [Schedule] and package dispatch; nil means no transformation. A [JobInfo] contains the payload
	// as stored. The Args of a [Job], and [Args], return the original values. Stream events, notifications,
	// relay messages, results, errors, keys and unique keys are not transformed.
	Codec Codec

	// ReadOnly opens the file for reading only. The file may be a copy, a snapshot, a file without write permission,
	// or a file in use by other processes. It must exist and have this version's schema; with an older schema, Open
	// returns [ErrUnsupported]. You can read and wait as usual, including with [DB.Listen], [Stream.Tail] and
	// [WaitResult]. Every verb that may write returns [ErrReadOnly], even when there is nothing to write.
	//
	// A file in use has a write-ahead log next to it (-wal), and honker reads both. A file without a log is not in
	// use by any process. Reading it creates no files, so it may be on read-only media. Once a process begins to
	// write to such a file, verbs return [ErrDatabaseReplaced]: close the DB and open it again.
	ReadOnly bool

	// NotificationTTL is the age at which Maintain deletes notifications; 0 keeps all of them.
	NotificationTTL time.Duration
	// WALLimit is the size in bytes above which Maintain truncates the write-ahead log. The default is 64 MiB.
	// If WALLimit is negative, Maintain never truncates the log.
	WALLimit int64

	// OnConnect is called for each new connection of the DB, of [Connector] and of [DB.SQL], after honker has set it
	// up. Use it for a pragma, a temporary table, an attached file or a hook. If OnConnect returns an error, the
	// connection fails.
	//
	// conn is the driver's own connection. It implements driver.ExecerContext and driver.QueryerContext, and, with
	// modernc.org/sqlite, sqlite.HookRegisterer. Statements on conn run immediately, without waiting for the writer,
	// and do not wake waiting goroutines. OnConnect must therefore not write to the file, call a verb of the DB, or
	// leave a transaction open. OnConnect is not called for the connection that watches for commits. [Attach] ignores
	// OnConnect, because the pool already has connections.
	OnConnect func(ctx context.Context, conn driver.Conn) error

	// Headers returns headers to add to the jobs of an enqueue, such as a trace context or a tenant. Every enqueue
	// through the DB, including those of an [Outbox], calls it with its ctx, in the caller's goroutine and before
	// anything is written. It must not use the DB. A nil or empty map adds no headers. The enqueue fails if there are
	// too many headers. The option [Headers] overrides headers with the same name. For jobs enqueued by a schedule,
	// Headers is called with the ctx of Tick, Trigger or Run. [Stream] events have no headers.
	Headers func(ctx context.Context) map[string]string

	// NoTraffic excludes this DB's jobs from the per-minute counts kept in the file, and avoids the small writes
	// for these counts. See Traffic in package admin.
	NoTraffic bool

	// LegacyMessages supports programs that share the file and listen to the channels honker:<queue> and
	// honker:stream:<topic>. For each job that is added or retried, and for each event, it sends the same message as
	// honker up to 0.2.4, in the same transaction: the word new, which is not JSON. Workers don't need these messages
	// in any binding. The messages take up space until [DB.PruneNotifications] deletes them, so set NotificationTTL.
	// Writes by other DBs and bindings do not send them. [Attach] returns [ErrUnsupported] with this option, because
	// the connections belong to the application.
	LegacyMessages bool

	// NoFileNotices makes honker poll the file instead of relying on notifications from the operating system. Set it
	// for filesystems that don't provide such notifications, and for testing/synctest. A testing/synctest bubble does
	// not receive the notifications, so Open and Attach return [ErrUnsupported] inside a bubble unless NoFileNotices
	// is set. Also set a long PollInterval in that case, and open the DB inside the bubble, as package honkertest
	// does.
	NoFileNotices bool
	// PosixLocks keeps POSIX record locks for this process. By default honker switches the driver to Linux OFD locks
	// before the first connection, because POSIX locks vanish when any code in this process opens and closes the
	// database file.
	PosixLocks bool
	// AnyFilesystem allows network filesystems and folders that a virtual machine shares with its host. By default
	// these are rejected, because locks and shared memory are unreliable there and data gets lost. Filesystems that
	// may be unsafe, such as FUSE and cluster filesystems, are allowed with a logged warning. The check exists only
	// on Linux.
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
	if out.IdleConns == 0 {
		out.IdleConns = 128
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
	if o.Readers < 0 || o.IdleConns < 0 || o.MaxPayload < 0 || o.CountLimit < 0 {
		return fmt.Errorf("%w: Readers, IdleConns, MaxPayload and CountLimit must not be negative", ErrInvalid)
	}
	return errors.Join(engine.NotNegative("BusyTimeout", o.BusyTimeout), engine.NotNegative("PollInterval", o.PollInterval),
		engine.NotNegative("NotificationTTL", o.NotificationTTL))
}

// refuseBubble rejects options that would hang inside a testing/synctest bubble. Time in a bubble advances only
// while all of its goroutines are durably blocked, and a notification from the operating system comes from
// outside the bubble.
func (o *Options) refuseBubble() error {
	if o.NoFileNotices || !wake.InBubble() {
		return nil
	}
	return fmt.Errorf("%w: file notices keep the time of a testing/synctest bubble from passing: "+
		"open the DB with package honkertest, or set NoFileNotices and a PollInterval of an hour", ErrUnsupported)
}

// DB is an open SQLite file with its queues, streams, locks and schedules. It is safe for concurrent use. Open a single
// DB per file in each process, and Close it when done.
type DB struct {
	pool     func() *sql.DB // opens the application's pool on first use
	opts     Options
	traffic  *traffic.Meter     // nil if NoTraffic is set
	presence *presence.Register // nil if the DB is read-only and therefore has no workers
	engine   *engine.Engine
	handoffs worker.Handoffs // idle workers of this DB
	running  worker.Running  // every running Work call of this DB
	limited  worker.Limited  // queues that have limits

	// waiting serializes goroutines in this process that wait for the same lock or rate limit. They check the
	// file in order of arrival.
	waiting wake.KeyedMutex

	// pages are the pages that subscriptions of this DB are about to read.
	pages engine.SharedReads[pageKey, row.EventPage]

	otherLimits sync.Map // names of rate limits for which some other handle has a larger limit
}

func init() {
	engine.Register(func(db any) *engine.Engine { return db.(*DB).engine })
	engine.RegisterNew(newOf)
	engine.RegisterViews(engine.Views{
		Job:   func(row row.Job, now time.Time, c engine.Codec) any { return infoOf(&row, now, c) },
		Stats: func(row engine.QueueStats) any { return statsOf(row) },
	})
	engine.RegisterAlong(func(f engine.Along) any { return EnqueueOption(func(o *enqueueOptions) { o.along = f }) })
	engine.RegisterPipe(func(ctx context.Context, e *engine.Engine, stream any, consumer string, to engine.Sink) error {
		return stream.(pipeable).pipe(ctx, e, consumer, to)
	})
}

// newOf returns a DB for another module's database, which open opens.
func newOf(options any, open func(engine.Settings) (engine.Database, error)) (any, error) {
	given := options.(Options)
	o, err := given.withDefaults()
	if err != nil {
		return nil, err
	}
	d, err := open(engine.Settings{Logger: o.Logger, BusyTimeout: o.BusyTimeout, ReadOnly: o.ReadOnly})
	if err != nil {
		return nil, err
	}
	return newDB(o, d.Backend, d.Stores, d.Pool, d.Looks), nil
}

// newDB returns a DB for a backend. pool returns the application's pool. The notifier sends its queries to
// looks. newDB starts no goroutines.
func newDB(o Options, b engine.Backend, s engine.Stores, pool func() *sql.DB, looks *sql.DB) *DB {
	db := &DB{pool: pool, opts: o}
	var piggybacks []engine.Piggyback
	if !o.NoTraffic && !o.ReadOnly {
		db.traffic = traffic.NewMeter(s.Minutes, func() { db.engine.WritePiggyback(context.Background(), db.traffic) })
		piggybacks = append(piggybacks, db.traffic)
	}
	if !o.ReadOnly {
		db.presence = presence.NewRegister(s.Workers, b.Now, func() { db.engine.FlushPiggyback(db.presence) })
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

// mustExist panics if db is nil, naming the calling function. Otherwise the nil pointer would cause a panic later,
// far from the mistake.
func (db *DB) mustExist(in string) {
	if db == nil {
		panic("honker: " + in + ": nil *DB")
	}
}

// encode returns the JSON text to store for a payload.
func (db *DB) encode(v any) (string, error) { return engine.Encode(v, db.opts.MaxPayload) }

// SQL returns a pool for the application's own statements and transactions.
//
// BeginTx waits for its turn among the write transactions of this process and begins IMMEDIATE. With
// &sql.TxOptions{ReadOnly: true} it begins a deferred read snapshot instead, which cannot write. Inside a
// transaction, a statement is not interrupted by its own ctx; when the ctx passed to BeginTx ends, the whole
// transaction is rolled back. Executing COMMIT or ROLLBACK as a statement in a sql.Tx returns [ErrInvalid], after
// which the transaction can only be rolled back. The rows of a statement that writes, such as INSERT … RETURNING, are
// all read before the first row is returned. Prepared statements are cached.
//
// The number of connections is unlimited, and up to Readers+1 idle connections stay open, or fewer in a process with
// many files (see [Options.IdleConns]); until its next use, sql.DB counts a connection as idle that was closed for that
// reason. Use SetMaxOpenConns and the other methods of sql.DB to change this. [DB.Close] closes the pool, unless the pool
// was attached.
//
// The connections provide honker's SQL functions, such as honker_enqueue and notify, with the same names,
// arguments and results as in the other bindings; docs/sql.md lists them. The functions can also be used in
// triggers. An attached pool has only the functions of its own driver.
func (db *DB) SQL() *sql.DB { return db.pool() }

// Close ends all waits and loops and lets Work drain. It returns once all of the library's goroutines have exited.
// Later calls have no effect. A handler must not call Close, because Close would wait for that handler.
func (db *DB) Close() error { return fail("close", "", db.engine.Close()) }

// Check verifies the file. It runs SQLite's integrity check and then checks honker's own invariants, for example
// that a job is either live or dead. It reads the whole file and is intended for tests and operators. If the
// file is inconsistent, Check returns a [*BrokenError] that lists the violations.
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
