// Package pgbackend opens a PostgreSQL database for the engine.
package pgbackend

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/honker-go/honker/honkerpg/internal/pgstore"
	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/wake"
)

// Options configures a Backend. Fields without a comment on their zero value are required.
type Options struct {
	Schema      pgsql.Schema
	BusyTimeout time.Duration // how long a call tries again because of other transactions or a lost connection
	Logger      *slog.Logger

	Pool   *sql.DB        // for honker's own statements
	App    func() *sql.DB // the application's pool, which may be the same
	Close  func() error   // closes the pools that belong to the Backend; nil if none does
	NoMake bool           // the schema must exist: it is neither created nor brought up to date
	// OldSchema returns the error for a schema that is missing, with version 0, or too old, if NoMake is set.
	OldSchema func(version, current int) error
	Reads     bool // nothing will be written, and so commits of others are polled for

	Listen *pgx.ConnConfig // for the connection that gets notices; nil to poll
	// BeforeListen changes a copy of Listen before each connection is made, for example its password. It may be nil.
	BeforeListen func(context.Context, *pgx.ConnConfig) error
	Poll         time.Duration // the longest pause between two looks without notices; 0 for the default
	LocalClock   bool          // Now is the process's time and not the server's, as in a testing/synctest bubble
}

// Backend gives access to a schema of a PostgreSQL database. It implements engine.Backend.
type Backend struct {
	name    string
	opts    Options
	pool    *sql.DB
	clock   clock
	where   string   // the database and schema, as sqlWhere returns them
	own     sync.Map // transactions of Begin, by their *sql.Tx
	lineage lineage
	merger  merger
	watcher atomic.Pointer[watcher] // the last of Watch; nil before
}

// Open prepares a Backend on a database. It brings the schema up to date, unless o.NoMake is set. ctx bounds the call.
// If Open fails, it closes the pools.
func Open(ctx context.Context, config *pgx.ConnConfig, o Options) (*Backend, error) {
	if o.Reads {
		o.Listen = nil // only registered processes get notices, and a standby refuses LISTEN
	}
	b := &Backend{name: fmt.Sprintf("%s:%d/%s/%s", config.Host, config.Port, config.Database, o.Schema), opts: o, pool: o.Pool}
	b.clock.isLocal = o.LocalClock
	b.merger.backend = b
	if err := b.prepare(ctx, config); err != nil {
		if failed := b.Close(); failed != nil {
			b.opts.Logger.WarnContext(ctx, "honker: closing the connections failed", "db", b.name, "err", failed)
		}
		return nil, b.explain(err)
	}
	return b, nil
}

// prepare brings the schema up to date, and reads the clock and the identity of the database.
func (b *Backend) prepare(ctx context.Context, config *pgx.ConnConfig) error {
	err := checkPooler(ctx, b.pool, config)
	if pgsql.Refuses(err) {
		return fmt.Errorf("%w: the server refuses the connection string; correct its user, password or database: %w", engine.ErrInvalid, err)
	}
	if err != nil {
		return err
	}
	if b.opts.NoMake {
		err = pgstore.Current(ctx, b.pool, b.opts.Schema, b.opts.OldSchema)
	} else {
		err = pgstore.Bootstrap(ctx, b.pool, b.opts.Schema)
	}
	if err != nil {
		return err
	}
	if b.opts.NoMake && !b.opts.Reads {
		if err := pgstore.CheckAccepts(ctx, b.pool); err != nil {
			return err
		}
	}
	if err := pgstore.CheckRights(ctx, b.pool, b.opts.Schema, b.opts.Reads); err != nil {
		return err
	}
	if b.where, err = pgstore.Where(ctx, b.pool, b.opts.Schema); err != nil {
		return err
	}
	if err := b.clock.set(ctx, b.pool); err != nil {
		return err
	}
	conn, err := b.connect(ctx, b.pool) // reads the timeline
	if err != nil {
		return err
	}
	return conn.Close()
}

// Name implements engine.Backend.
func (b *Backend) Name() string { return b.name }

// SchemaName returns the name of the schema of honker's tables.
func (b *Backend) SchemaName() pgsql.Schema { return b.opts.Schema }

// Close implements engine.Backend.
func (b *Backend) Close() error {
	if b.opts.Close == nil {
		return nil
	}
	return b.opts.Close()
}

// Now implements engine.Backend. It returns the time of the server.
func (b *Backend) Now() time.Time { return b.clock.now() }

// Write implements engine.Backend. It returns ErrUncertain if the connection was lost before the server has answered a
// commit. An op that has had no effect, because other transactions were in its way or the connection was lost, runs again
// until the busy timeout has passed. An engine.Fenced op also runs again after an uncertain commit.
func (b *Backend) Write(ctx context.Context, op engine.Op) error {
	if m, ok := op.(engine.Merges); ok && m.MergeKey() != nil {
		if err := b.merger.write(ctx, m); err != errAlone {
			return b.explain(err)
		}
	}
	return b.explain(b.writeAlone(ctx, op))
}

// writeAlone writes op in a statement or transaction of its own.
func (b *Backend) writeAlone(ctx context.Context, op engine.Op) error {
	fenced, isFenced := op.(engine.Fenced)
	return b.retry(ctx, func() (again bool, err error) {
		err = b.write(ctx, op)
		if isFenced && errors.Is(err, engine.ErrUncertain) {
			fenced.Again()
			return true, err
		}
		return pgsql.Passing(err) || isGone(err), err
	})
}

// Repeat implements engine.Contended.
func (b *Backend) Repeat(ctx context.Context, transaction func() error) error {
	return b.explain(b.retry(ctx, func() (again bool, err error) {
		err = transaction()
		return pgsql.Passing(err), err
	}))
}

// write runs op on a connection. ctx limits the wait for the connection; the op itself is not interrupted.
func (b *Backend) write(ctx context.Context, op engine.Op) error {
	conn, err := b.connect(ctx, b.pool)
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx = context.WithoutCancel(ctx)
	if err := b.refresh(ctx, conn); err != nil {
		return undone(conn, err)
	}
	now := b.clock.now()
	s := &session{Querier: conn}
	if op.Single() {
		err = s.lost(conn, op.Run(ctx, s, now))
	} else {
		err = b.transaction(ctx, conn, op, s, now)
	}
	if err == nil {
		b.catchUp(ctx, conn, s.left, now)
	}
	return err
}

// refresh reads the server's clock if the last reading is old.
func (b *Backend) refresh(ctx context.Context, q row.Querier) error {
	if !b.clock.old() {
		return nil
	}
	return b.clock.set(ctx, q)
}

// transaction runs op in a transaction on conn.
func (b *Backend) transaction(ctx context.Context, conn *sql.Conn, op engine.Op, s *session, now time.Time) (err error) {
	if err := pgstore.Begin(ctx, conn, b.opts.BusyTimeout); err != nil {
		return undone(conn, err)
	}
	open := true
	defer func() { // also if op panics
		if open && !closed(conn) {
			err = errors.Join(err, pgstore.Rollback(ctx, conn))
		}
	}()
	if err := op.Run(ctx, s, now); err != nil {
		return undone(conn, err)
	}
	open = false
	return committed(conn, pgstore.Commit(ctx, conn))
}

// session is the Querier of an op. It collects the work that the op leaves for the time after its commit.
type session struct {
	row.Querier
	left pgsql.Work
	ran  int // statements
}

// After implements pgsql.Session.
func (s *session) After(w pgsql.Work) { s.left |= w }

// ExecContext implements row.Querier.
func (s *session) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	s.ran++
	return s.Querier.ExecContext(ctx, query, args...)
}

// QueryContext implements row.Querier.
func (s *session) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	s.ran++
	return s.Querier.QueryContext(ctx, query, args...)
}

// catchUpAll does the work that any transaction may have left.
func (b *Backend) catchUpAll(ctx context.Context) {
	left, _, err := pgstore.Attend(ctx, b.pool, b.opts.Schema, "", nil)
	if err != nil {
		left = pgsql.Resolve | pgsql.Number
	}
	b.catchUp(ctx, b.pool, left, b.Now())
}

// catchUp does the work that committed transactions have left. If it fails, the rows that ask for the work remain, and
// the next look with such work does both.
func (b *Backend) catchUp(ctx context.Context, q row.Querier, left pgsql.Work, now time.Time) {
	if err := pgstore.CatchUp(ctx, q, b.opts.Schema, left, now); err != nil {
		b.opts.Logger.WarnContext(ctx, "honker: work after a commit failed and is left to the next commit", "db", b.name, "err", err)
	}
	if w := b.watcher.Load(); w != nil {
		w.committed(left)
	}
}

// Read implements engine.Backend. It calls f again if the connection was lost, or if a
// standby has ended a statement because its primary removes the rows.
func (b *Backend) Read(ctx context.Context, oneMoment bool, f func(context.Context, row.Querier) error) error {
	return b.explain(b.retry(ctx, func() (again bool, err error) {
		err = b.read(ctx, oneMoment, f)
		return pgsql.Passing(err) || isGone(err), err
	}))
}

func (b *Backend) read(ctx context.Context, oneMoment bool, f func(context.Context, row.Querier) error) error {
	conn, err := b.connect(ctx, b.pool)
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx = context.WithoutCancel(ctx)
	if err := b.refresh(ctx, conn); err != nil {
		return undone(conn, err)
	}
	if oneMoment {
		return undone(conn, readMoment(ctx, conn, f))
	}
	return undone(conn, f(ctx, conn))
}

// readMoment runs f in a transaction that sees one state of the database.
func readMoment(ctx context.Context, conn *sql.Conn, f func(context.Context, row.Querier) error) error {
	tx, err := conn.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	return f(ctx, tx)
}

// Begin implements engine.Backend. Several transactions may be open at a time.
func (b *Backend) Begin(ctx context.Context) (engine.Tx, error) {
	var t *ownTx
	err := b.retry(ctx, func() (again bool, err error) {
		t, err = b.begin(ctx)
		return isGone(err), err
	})
	if err != nil {
		return nil, b.explain(err)
	}
	b.own.Store(t.Tx, t)
	return t, nil
}

func (b *Backend) begin(ctx context.Context) (*ownTx, error) {
	conn, err := b.connect(ctx, b.opts.App())
	if err != nil {
		return nil, err
	}
	// A ctx that ended during the commit would end the connection, and the commit would be uncertain.
	tx, err := conn.BeginTx(context.WithoutCancel(ctx), &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return nil, errors.Join(undone(conn, err), conn.Close())
	}
	t := &ownTx{Tx: tx, ctx: ctx, conn: conn, backend: b}
	t.keep = context.AfterFunc(ctx, func() { _ = tx.Rollback() })
	return t, nil
}

// ownTx is a transaction of Begin.
type ownTx struct {
	*sql.Tx
	ctx     context.Context // rolls back if it ends before the commit
	keep    func() bool     // stops that
	conn    *sql.Conn
	backend *Backend
	over    atomic.Bool // it is being committed or rolled back
	mu      sync.Mutex
	calls   map[any]func() // after the commit
}

// SQL implements engine.Tx.
func (t *ownTx) SQL() *sql.Tx { return t.Tx }

// Alive implements engine.Tx. The server reports with each answer whether a transaction is open.
func (t *ownTx) Alive() error {
	var status byte
	err := t.conn.Raw(func(c any) error {
		status = c.(*stdlib.Conn).Conn().PgConn().TxStatus()
		return nil
	})
	if err == nil && status == 'I' && t.ctx.Err() == nil && !t.over.Load() {
		return fmt.Errorf("%w: a sql.Tx was ended by COMMIT or ROLLBACK as text: use its methods", engine.ErrInvalid)
	}
	return nil // database/sql reports a transaction that is over, and a lost connection fails the next statement
}

// Commit implements engine.Tx.
func (t *ownTx) Commit() error {
	if err := t.Alive(); err != nil {
		return err
	}
	t.over.Store(true)
	if !t.keep() && t.ctx.Err() != nil {
		return t.ctx.Err()
	}
	if err := uncertain(t.Tx.Commit()); err != nil {
		return t.backend.explain(err)
	}
	t.mu.Lock()
	calls := t.calls
	t.calls = nil
	t.mu.Unlock()
	t.backend.catchUpAll(context.Background())
	for _, call := range calls {
		call()
	}
	return nil
}

// Close implements engine.Tx.
func (t *ownTx) Close() {
	t.over.Store(true)
	t.keep()
	_ = t.Rollback() // does nothing after Commit
	_ = t.conn.Close()
	t.backend.own.Delete(t.Tx)
}

func (t *ownTx) then(committed map[any]func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.calls == nil {
		t.calls = make(map[any]func(), len(committed))
	}
	for key, call := range committed {
		t.calls[key] = call
	}
}

// Savepoint implements engine.Backend.
func (b *Backend) Savepoint(ctx context.Context, q row.Querier) (end func(ctx context.Context, keep bool) error, err error) {
	if err := pgstore.Savepoint(ctx, q); err != nil {
		return nil, b.explain(err)
	}
	return func(ctx context.Context, keep bool) error { return pgstore.EndSavepoint(ctx, q, keep) }, nil
}

// CheckTx implements engine.Backend. It asks the server about a transaction that Begin has not returned, such as a
// transaction of the application's pool. In the same round trip, the transaction gets a notice for the processes that
// wait for its changes.
func (b *Backend) CheckTx(ctx context.Context, tx row.Querier, committed map[any]func()) (seen bool, err error) {
	opens := func() bool { return true }
	switch t := tx.(type) {
	case *sql.Tx:
		if own, ok := b.own.Load(t); ok {
			own.(*ownTx).then(committed)
			return true, nil
		}
	case native:
		opens = t.open
	default:
		if err := pgstore.InTransaction(ctx, tx); err != nil {
			return false, fmt.Errorf("%w: not an open transaction: %w", engine.ErrInvalid, err)
		}
	}
	where, err := pgstore.WhereAndWake(ctx, tx, b.opts.Schema, signalsOf(committed))
	switch {
	case errors.Is(err, sql.ErrTxDone):
		return false, fmt.Errorf("%w: the transaction has ended: %w", engine.ErrInvalid, err)
	case pgsql.Aborted(err):
		return false, fmt.Errorf("%w: an earlier error has aborted the transaction; roll it back: %w", engine.ErrInvalid, err)
	case pgsql.Elsewhere(err) || err == nil && where != b.where:
		return false, fmt.Errorf("%w: the transaction belongs to another database than %s", engine.ErrInvalid, b.name)
	case err != nil:
		return false, b.explain(err)
	case !opens():
		return false, fmt.Errorf("%w: a pgx.Tx was ended by COMMIT or ROLLBACK as text: use its methods", engine.ErrInvalid)
	}
	return false, nil
}

// signalsOf returns the signals of the changes among the keys of committed.
func signalsOf(committed map[any]func()) (set wake.Signals) {
	for key := range committed {
		if c, ok := key.(wake.Change); ok {
			set |= wake.SignalsOf(c)
		}
	}
	return set
}

// Check implements engine.Backend.
func (b *Backend) Check(ctx context.Context) (broken []string, err error) {
	err = b.Read(ctx, true, func(ctx context.Context, q row.Querier) error {
		broken, err = pgstore.Violations(ctx, q, b.opts.Schema)
		return err
	})
	return broken, err
}

// explain adds the engine's error to an error of the server.
func (b *Backend) explain(err error) error {
	switch {
	case pgsql.Busy(err):
		return fmt.Errorf("%w: %w", engine.ErrBusy, err)
	case pgsql.ReadOnly(err):
		return fmt.Errorf("%w: the server of %s accepts no writes: %w", engine.ErrReadOnly, b.name, err)
	case pgsql.Unprepared(err):
		return fmt.Errorf("%w: %w", errPooler, err)
	case pgsql.Denied(err):
		return fmt.Errorf("%w: the role lacks a right in %s; see Options.NoMigrate: %w", fs.ErrPermission, b.name, err)
	}
	return err
}
