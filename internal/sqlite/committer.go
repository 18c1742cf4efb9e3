package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"time"
)

// Op is one small write. It runs inside a transaction that may carry others.
type Op interface {
	// Run executes the statements at the time now. When it returns an error,
	// nothing of it stays.
	Run(ctx context.Context, q Querier, now time.Time) error
	// Single says that Run is one statement, which SQLite undoes by itself.
	Single() bool
}

// Committer turns the small writes of many goroutines into few commits.
//
// There is no goroutine and no timer behind it: the caller who finds nobody at
// work becomes the leader, runs whatever waits, commits once, answers everybody
// and passes the lead to the next who waits. So a caller alone waits for nobody,
// and under load a commit carries many.
type Committer struct {
	source Source
	limit  time.Duration // how long an op may wait for its turn
	bound  time.Duration // of one batch

	mu      sync.Mutex
	waiting []*ticket // in order of arrival; the leader's own is the first
	leading bool
	closed  bool
	idle    sync.Cond // leading became false
	crowd   int       // ops in the last batch: expect as many

	conn *sql.Conn // the leader's
}

// Source lends the connection that a batch is written on.
type Source struct {
	Pool *sql.DB
	Ours bool // a Connector's: one is kept from batch to batch, and it knows how to wait
}

// Bounds of one commit: others want the writer too.
const (
	maxBatch     = 512
	maxBatchTime = 10 * time.Millisecond
)

// ticket is a caller's place in the queue.
type ticket struct {
	op     Op
	err    error
	chosen bool      // told to lead; guarded by mu
	call   chan bool // true: lead; closed: done, err is set
}

// NewCommitter returns a committer that writes on connections of source.
func NewCommitter(source Source, limit time.Duration) *Committer {
	c := &Committer{source: source, limit: limit, bound: maxBatchTime}
	c.idle.L = &c.mu
	return c
}

// Do runs op in a transaction and returns when that is committed.
//
// A ctx that ends before op has started withdraws it. Once started, Do returns the
// real outcome.
func (c *Committer) Do(ctx context.Context, op Op) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	t := &ticket{op: op}
	lead, err := c.join(t)
	if err != nil {
		return err
	}
	if !lead {
		lead, err = c.wait(ctx, t)
	}
	if lead {
		return c.lead(ctx, t)
	}
	return err
}

// join queues t; true makes its caller the leader.
func (c *Committer) join(t *ticket) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false, ErrClosed
	}
	c.waiting = append(c.waiting, t)
	if !c.leading {
		c.leading, t.chosen = true, true
		return true, nil
	}
	t.call = make(chan bool, 1)
	return false, nil
}

// wait returns true when t has to lead, and its outcome otherwise.
func (c *Committer) wait(ctx context.Context, t *ticket) (bool, error) {
	timeout := time.NewTimer(c.limit)
	defer timeout.Stop()
	select {
	case lead := <-t.call:
		return lead, t.err
	case <-ctx.Done():
		if c.withdraw(t) {
			return false, ctx.Err()
		}
	case <-timeout.C:
		if c.withdraw(t) {
			return false, errGateBusy(c.limit)
		}
	}
	lead := <-t.call // it had started, or was called to lead: too late
	return lead, t.err
}

// withdraw takes t out of the queue; false when it is no longer there or leads.
func (c *Committer) withdraw(t *ticket) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !t.chosen && c.removeLocked(t)
}

func (c *Committer) removeLocked(t *ticket) bool {
	for i, other := range c.waiting {
		if other == t {
			c.waiting = append(c.waiting[:i], c.waiting[i+1:]...)
			return true
		}
	}
	return false
}

// lead runs one batch, mine first, and passes the lead on.
func (c *Committer) lead(ctx context.Context, mine *ticket) error {
	defer c.passOn()
	conn, err := c.connection(ctx)
	if err != nil {
		return c.fail(mine, err)
	}
	if c.crowd > 1 {
		runtime.Gosched() // those just answered are on their way back: let them join
	}
	if t := c.alone(); t != nil {
		return c.runAlone(ctx, conn, t)
	}
	if err := c.begin(ctx, conn); err != nil {
		c.release(err)
		return c.fail(mine, err)
	}
	batch, err := c.run(conn)
	c.release(err)
	for _, t := range batch {
		if t != mine {
			close(t.call)
		}
	}
	return mine.err
}

// begin takes the write lock. Only connections of a foreign pool are retried here;
// ours have done so.
func (c *Committer) begin(ctx context.Context, conn *sql.Conn) error {
	if c.source.Ours {
		_, err := conn.ExecContext(ctx, "BEGIN IMMEDIATE")
		return err
	}
	return Retry(ctx, c.limit, func() error {
		_, err := conn.ExecContext(context.WithoutCancel(ctx), "BEGIN IMMEDIATE")
		return err
	})
}

// runAlone runs t as a transaction of one statement, which needs no BEGIN.
func (c *Committer) runAlone(ctx context.Context, conn *sql.Conn, t *ticket) error {
	inner := ctx
	if !c.source.Ours {
		inner = context.WithoutCancel(ctx)
	}
	err := Retry(ctx, c.limit, func() error { return safely(inner, conn, t.op, time.Now()) })
	c.release(err)
	c.crowd = 1
	return err
}

// alone takes the leader's op off the queue if it needs no transaction around it.
func (c *Committer) alone() *ticket {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waiting) > 1 || !c.waiting[0].op.Single() {
		return nil
	}
	t := c.waiting[0]
	c.waiting = c.waiting[:0]
	return t
}

// run executes what waits, and what comes meanwhile, and commits. Every ticket of
// the batch has its outcome when it returns.
func (c *Committer) run(conn *sql.Conn) (batch []*ticket, err error) {
	now := time.Now()
	for err == nil && len(batch) < maxBatch && time.Since(now) < c.bound {
		more := c.take(maxBatch - len(batch))
		if len(more) == 0 {
			break
		}
		for _, t := range more {
			if err == nil {
				err = runOne(conn, t, now, len(batch) == 0)
			}
			batch = append(batch, t)
		}
	}
	c.crowd = len(batch)
	if err == nil {
		err = c.commit(conn)
	}
	if err != nil {
		_, _ = conn.ExecContext(context.Background(), "ROLLBACK")
		for _, t := range batch {
			if t.err == nil {
				t.err = fmt.Errorf("the commit that carried it failed: %w", err)
			}
		}
	}
	return batch, err
}

// commit waits for readers where the journal is a rollback journal.
func (c *Committer) commit(conn *sql.Conn) error {
	return Retry(context.Background(), c.limit, func() error {
		_, err := conn.ExecContext(context.Background(), "COMMIT")
		return err
	})
}

// runOne runs t so that its failure is its own. The error it returns is one that
// takes the whole transaction with it.
func runOne(conn *sql.Conn, t *ticket, now time.Time, first bool) error {
	ctx := context.Background()
	switch {
	case t.op.Single():
		if t.err = safely(ctx, conn, t.op, now); t.err == nil {
			return nil
		}
		return errors.Join(fatal(t.err), lost(ctx, conn, t.err))
	case first:
		return runFirst(ctx, conn, t, now)
	}
	if _, err := conn.ExecContext(ctx, "SAVEPOINT honker"); err != nil {
		return err
	}
	if t.err = safely(ctx, conn, t.op, now); t.err != nil {
		if _, err := conn.ExecContext(ctx, "ROLLBACK TO honker"); err != nil {
			return fmt.Errorf("%w (after: %w)", err, t.err)
		}
	}
	_, err := conn.ExecContext(ctx, "RELEASE honker")
	return err
}

// runFirst needs no savepoint, under which SQLite copies every page before it is
// changed: there is nothing yet that must not be undone.
func runFirst(ctx context.Context, conn *sql.Conn, t *ticket, now time.Time) error {
	if t.err = safely(ctx, conn, t.op, now); t.err == nil {
		return nil
	}
	_, _ = conn.ExecContext(ctx, "ROLLBACK") // which SQLite may have done already
	_, err := conn.ExecContext(ctx, "BEGIN IMMEDIATE")
	return err
}

// safely makes an error of a panic: the leader runs the ops of others.
func safely(ctx context.Context, conn *sql.Conn, op Op, now time.Time) (err error) {
	defer func() { caught(recover(), &err) }()
	return op.Run(ctx, conn, now)
}

func caught(p any, err *error) {
	if p != nil {
		*err = fmt.Errorf("panic: %v\n\n%s", p, debug.Stack())
	}
}

// lost returns err if it took the transaction with it, as a trigger's ROLLBACK does. A
// second BEGIN succeeds only where there is no transaction.
func lost(ctx context.Context, conn *sql.Conn, err error) error {
	if _, in := conn.ExecContext(ctx, "BEGIN"); in != nil {
		return nil
	}
	_, _ = conn.ExecContext(ctx, "ROLLBACK")
	return err
}

// fatal picks the errors after which SQLite may have rolled everything back.
func fatal(err error) error {
	switch Code(err) & 0xff {
	case codeFull, codeIOErr, codeNoMem, codeInterrupt, codeCorrupt, codeCantOpen:
		return err
	}
	if errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrConnDone) {
		return err
	}
	return nil
}

// take moves up to n tickets from the queue into the running batch.
func (c *Committer) take(n int) []*ticket {
	c.mu.Lock()
	defer c.mu.Unlock()
	n = min(n, len(c.waiting))
	if n == 0 {
		return nil
	}
	taken := c.waiting[:n:n]
	c.waiting = c.waiting[n:]
	return taken
}

// fail withdraws the leader's op alone: the others get their own turns.
func (c *Committer) fail(mine *ticket, err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.removeLocked(mine)
	return err
}

// passOn calls the next who waits, after the leader has its answer.
func (c *Committer) passOn() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waiting) == 0 {
		c.leading = false
		c.idle.Broadcast()
		return
	}
	next := c.waiting[0]
	next.chosen = true
	next.call <- true
}

// connection returns the kept connection, or one from the pool.
func (c *Committer) connection(ctx context.Context) (*sql.Conn, error) {
	if c.conn != nil {
		return c.conn, nil
	}
	limited, cancel := context.WithTimeout(ctx, c.limit)
	defer cancel()
	conn, err := c.source.Pool.Conn(limited)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		return nil, fmt.Errorf("%w: no connection of the pool came free in %v", ErrBusy, c.limit)
	}
	if err != nil {
		return nil, err
	}
	c.conn = conn
	return conn, nil
}

// release gives the connection back unless it is to be kept and sound.
func (c *Committer) release(err error) {
	if c.source.Ours && fatal(err) == nil {
		return
	}
	_ = c.conn.Close()
	c.conn = nil
}

// Close refuses further ops and returns when those that wait are done.
func (c *Committer) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for c.leading {
		c.idle.Wait()
	}
	if c.conn == nil {
		return nil
	}
	err := c.conn.Close()
	c.conn = nil
	return err
}
