package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/wake"
)

// Committer groups small writes from many goroutines into a few commits.
//
// It has no goroutine and no timer. A caller that finds no leader becomes the leader: it runs all waiting requests,
// commits once, answers the requests in its batch and makes the next request the leader. A lone caller therefore
// never waits for others, while under load a commit contains many ops. Batches grow with the load, because more
// requests arrive during each commit.
type Committer struct {
	pool  ConnPool
	limit time.Duration // limit on the wait for an op to start
	bound time.Duration // time limit of a batch

	mu      sync.Mutex
	waiting []*request // in order of arrival; the leader's own request is first
	leading bool
	closed  bool
	idle    sync.Cond // signals that leading became false

	lastBatchSize int // batch size of the last leader, an estimate for the next batch
}

// Batch limits. Application transactions and other processes also need the write lock, and the first op in a batch
// isn't answered before the last.
const (
	maxBatch     = 512
	maxBatchTime = 10 * time.Millisecond
)

// request is an op in the queue.
type request struct {
	op     engine.Op
	err    error
	chosen bool      // told to lead; guarded by mu
	call   chan bool // receives true to lead; closed when err is set
}

// NewCommitter returns a committer that writes on connections of pool. limit is how long to wait for an op to start.
func NewCommitter(pool ConnPool, limit time.Duration) *Committer {
	c := &Committer{pool: pool, limit: limit, bound: maxBatchTime}
	c.idle.L = &c.mu
	return c
}

// Do runs op in a transaction and returns after the commit. The op runs on the caller's goroutine, or on that of
// another caller that is the leader.
//
// If ctx ends before op has started, Do withdraws it and returns ctx.Err(). Once op has started, Do
// returns its actual outcome.
func (c *Committer) Do(ctx context.Context, op engine.Op) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	r := &request{op: op}
	// The queue's backing array may keep r alive. It must not also keep the data read by op alive.
	defer func() { r.op = nil }()
	lead, err := c.join(r)
	if err != nil {
		return err
	}
	if !lead {
		lead, err = c.wait(ctx, r)
	}
	if lead {
		return c.lead(ctx, r)
	}
	return err
}

// join queues r. It returns true if the caller is now the leader. Both decisions are made under a
// single lock, so no request is left without a leader.
func (c *Committer) join(r *request) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false, wake.ErrClosed
	}
	c.waiting = append(c.waiting, r)
	if !c.leading {
		c.leading, r.chosen = true, true
		return true, nil
	}
	r.call = make(chan bool, 1) // a leader does not need it
	return false, nil
}

// wait returns true if r must lead, or r's outcome otherwise. The limit applies only to requests that have not
// started, because a running batch always ends.
func (c *Committer) wait(ctx context.Context, r *request) (bool, error) {
	timeout := time.NewTimer(c.limit)
	defer timeout.Stop()
	select {
	case lead := <-r.call:
		return lead, r.err
	case <-ctx.Done():
		if c.withdraw(r) {
			return false, ctx.Err()
		}
	case <-timeout.C:
		if c.withdraw(r) {
			return false, errGateBusy(c.limit)
		}
	}
	// Too late: r has started, or must lead. Returning now would leave the outcome unknown, or the
	// queue without a leader.
	lead := <-r.call
	return lead, r.err
}

// withdraw removes r from the queue. It returns false if r has already left the queue or must lead. A request that
// was told to lead is still in the queue, but has a value in its channel.
func (c *Committer) withdraw(r *request) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !r.chosen && c.removeLocked(r)
}

func (c *Committer) removeLocked(r *request) bool {
	// The linear search is fine: callers rarely give up, and the queue is no longer than the number
	// of callers.
	for i, other := range c.waiting {
		if other == r {
			c.waiting = append(c.waiting[:i], c.waiting[i+1:]...)
			return true
		}
	}
	return false
}

// lead runs a batch that starts with its own request, and then makes the next request the leader.
// It does not run a second batch, because its caller is waiting for an answer that is already
// known.
func (c *Committer) lead(ctx context.Context, own *request) error {
	defer c.passOn()
	conn, err := c.pool.acquire(ctx, c.limit)
	if err != nil {
		return c.fail(own, err)
	}
	// Skip this for a single caller, which would pay for it on each commit.
	if c.lastBatchSize > 1 {
		// Let callers that were just answered join with their next request. This improves throughput by a third: with
		// 8 callers, a plain Enqueue takes 28 µs with the yield and 40 µs without it; with 64 callers, 19 µs and 27
		// µs (medians of 3, two cores).
		runtime.Gosched()
	}
	// Check now, because others may have joined while the connection was acquired.
	if r := c.takeAlone(); r != nil {
		return c.runAlone(ctx, conn, r)
	}
	if err := c.begin(ctx, conn); err != nil {
		c.pool.release(conn, err)
		return c.fail(own, err)
	}
	batch, err := c.run(conn)
	// Release before answering: a caller that then closes the pool must find all connections
	// returned.
	c.pool.release(conn, err)
	for _, r := range batch {
		if r != own {
			close(r.call)
		}
	}
	return own.err
}

// begin takes the write lock immediately. A transaction that began with a read could fail to get
// the lock because of another process. On a wrapped connection, BEGIN first enters the gate; see
// conn.control.
func (c *Committer) begin(ctx context.Context, conn *sql.Conn) error {
	inner := c.pool.statementCtx(ctx)
	return Retry(ctx, c.limit, func() error {
		_, err := conn.ExecContext(inner, "BEGIN IMMEDIATE")
		return err
	})
}

// runAlone runs r as a single-statement transaction without BEGIN and COMMIT. This is the common
// case in a process that writes little.
func (c *Committer) runAlone(ctx context.Context, conn *sql.Conn, r *request) error {
	inner := c.pool.statementCtx(ctx)
	err := Retry(ctx, c.limit, func() error { return safely(inner, conn, r.op, time.Now()) })
	c.pool.release(conn, err)
	c.lastBatchSize = 1
	return err
}

// takeAlone removes the leader's op from the queue if it is the only op and needs no explicit
// transaction.
func (c *Committer) takeAlone() *request {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waiting) > 1 || !c.waiting[0].op.Single() {
		return nil
	}
	r := c.waiting[0]
	c.waiting = c.waiting[:0]
	return r
}

// run executes the waiting ops, and any that arrive while it does, and commits them. When it returns, each request in
// the batch has its outcome.
func (c *Committer) run(conn *sql.Conn) ([]*request, error) {
	batch, err := c.runWaiting(conn)
	c.lastBatchSize = len(batch)
	if err == nil {
		err = c.commit(conn)
	}
	if err == nil {
		return batch, nil
	}
	// SQLite may have rolled back already, so ignore the error.
	_, _ = conn.ExecContext(context.Background(), "ROLLBACK")
	for _, r := range batch {
		if r.err == nil { // an op that failed keeps its own error
			r.err = fmt.Errorf("the shared commit failed: %w", err)
		}
	}
	return batch, err
}

// runWaiting executes requests until none are left or a limit is reached. It returns only errors that abort the whole
// transaction. Requests taken from the queue are in batch even if they didn't run.
func (c *Committer) runWaiting(conn *sql.Conn) (batch []*request, err error) {
	now := time.Now() // the same time for all ops in a commit
	// The first round always runs, because it contains the leader's op. The process may have been
	// preempted since now was read.
	for len(batch) == 0 || len(batch) < maxBatch && time.Since(now) < c.bound {
		taken := c.take(maxBatch - len(batch))
		if len(taken) == 0 {
			return batch, nil
		}
		for i, r := range taken {
			if err := c.runOne(conn, r, now, len(batch)+i == 0); err != nil {
				return append(batch, taken...), err
			}
		}
		batch = append(batch, taken...)
	}
	return batch, nil
}

// commit commits the batch. With a rollback journal it waits for readers, because COMMIT needs an
// exclusive lock. It cannot be cancelled: the ops have run, and their callers must learn the
// outcome.
func (c *Committer) commit(conn *sql.Conn) error {
	return Retry(context.Background(), c.limit, func() error {
		_, err := conn.ExecContext(context.Background(), "COMMIT")
		return err
	})
}

// runOne runs r so that its failure does not affect other ops. It returns only errors that abort
// the whole transaction.
func (c *Committer) runOne(conn *sql.Conn, r *request, now time.Time, first bool) error {
	ctx := context.Background() // the caller's ctx may end, but other ops depend on the transaction
	if r.op.Single() {
		if r.err = safely(ctx, conn, r.op, now); r.err == nil {
			return nil
		}
		if isFatal(r.err) || c.pool.lost(ctx, conn) {
			return r.err
		}
		return nil
	}
	if first {
		return runFirst(ctx, conn, r, now)
	}
	// Later ops need a savepoint, so that a failure keeps the changes of earlier ops.
	if _, err := conn.ExecContext(ctx, "SAVEPOINT honker"); err != nil {
		return err
	}
	if r.err = safely(ctx, conn, r.op, now); r.err != nil {
		if _, err := conn.ExecContext(ctx, "ROLLBACK TO honker"); err != nil {
			return fmt.Errorf("%w (after: %w)", err, r.err)
		}
	}
	_, err := conn.ExecContext(ctx, "RELEASE honker")
	return err
}

// runFirst runs r without a savepoint, because there are no earlier changes to preserve. In a
// savepoint, SQLite would copy every page before changing it.
func runFirst(ctx context.Context, conn *sql.Conn, r *request, now time.Time) error {
	if r.err = safely(ctx, conn, r.op, now); r.err == nil {
		return nil
	}
	_, _ = conn.ExecContext(ctx, "ROLLBACK") // SQLite may have done so already
	_, err := conn.ExecContext(ctx, "BEGIN IMMEDIATE")
	return err
}

// safely turns a panic into an error. The leader runs other callers' ops, so it must still answer them and choose the
// next leader.
func safely(ctx context.Context, conn *sql.Conn, op engine.Op, now time.Time) (err error) {
	defer func() {
		if p := panicError(recover()); p != nil {
			err = p
		}
	}()
	return op.Run(ctx, conn, now)
}

// isFatal reports whether err means that SQLite may have rolled back the transaction, or that the
// connection is unusable.
func isFatal(err error) bool {
	switch Code(err) & 0xff {
	case codeFull, codeIOErr, codeNoMem, codeInterrupt, codeCorrupt, codeCantOpen:
		return true
	}
	return errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrConnDone)
}

// take moves up to n requests from the queue into the current batch.
func (c *Committer) take(n int) []*request {
	c.mu.Lock()
	defer c.mu.Unlock()
	// Limit the capacity, so that appends to either slice do not overwrite the other.
	n = min(n, len(c.waiting))
	if n == 0 {
		return nil
	}
	taken := c.waiting[:n:n]
	c.waiting = c.waiting[n:]
	return taken
}

// fail withdraws only the leader's op. The error may affect only the leader, for example because its ctx has ended,
// so the other requests try again by themselves.
func (c *Committer) fail(own *request, err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.removeLocked(own)
	return err
}

// passOn makes the next request the leader. It runs after the leader has its answer.
func (c *Committer) passOn() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waiting) == 0 {
		c.leading = false
		c.idle.Broadcast()
		return
	}
	// The request stays in the queue as the first op of its own batch.
	next := c.waiting[0]
	next.chosen = true
	next.call <- true
}

// Rest returns the connection that is kept between batches to the pool, unless a batch is running.
func (c *Committer) Rest() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.leading {
		_ = c.pool.close()
	}
}

// Close rejects new ops and returns once the waiting ops are done.
func (c *Committer) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true // set before waiting, so that no new op keeps a leader busy
	for c.leading {
		c.idle.Wait()
	}
	return c.pool.close()
}

// ConnPool lends a connection to write a batch on. It serves a single committer, whose current leader
// is its only user.
type ConnPool interface {
	// acquire returns a connection. It waits for up to limit.
	acquire(ctx context.Context, limit time.Duration) (*sql.Conn, error)
	// release returns the connection. err is the error that occurred on it, if any.
	release(conn *sql.Conn, err error)
	// statementCtx returns the context for a statement that takes the write lock under ctx.
	statementCtx(ctx context.Context) context.Context
	// lost reports whether an error has ended the transaction of conn, as a trigger's ROLLBACK does.
	// Further statements would then be committed one by one.
	lost(ctx context.Context, conn *sql.Conn) bool
	close() error
}

// OwnPool returns a ConnPool for a Connector's pool. It keeps a connection between batches, so that
// statements stay prepared and commits bypass the pool.
func OwnPool(pool *sql.DB) ConnPool { return &ownPool{pool: pool} }

// ForeignPool returns a ConnPool for an application's pool, which may use any driver. It borrows a connection for
// each batch, because the pool may be small and the application needs the connections.
func ForeignPool(pool *sql.DB) ConnPool { return foreignPool{pool} }

type ownPool struct {
	pool *sql.DB
	kept *sql.Conn
}

func (p *ownPool) acquire(ctx context.Context, limit time.Duration) (*sql.Conn, error) {
	if p.kept != nil {
		return p.kept, nil
	}
	conn, err := Borrow(ctx, p.pool, limit)
	if err != nil {
		return nil, err
	}
	p.kept = conn
	return conn, nil
}

func (p *ownPool) release(_ *sql.Conn, err error) {
	if err != nil && isFatal(err) {
		_ = p.close() // the pool decides whether the connection is still usable
	}
}

// statementCtx returns ctx. Our connections use it only for waiting, and do not interrupt a write.
func (p *ownPool) statementCtx(ctx context.Context) context.Context { return ctx }

// lost returns false. Our connections detect a lost transaction and reject all further statements,
// including COMMIT.
func (p *ownPool) lost(context.Context, *sql.Conn) bool { return false }

func (p *ownPool) close() error {
	if p.kept == nil {
		return nil
	}
	err := p.kept.Close()
	p.kept = nil
	return err
}

type foreignPool struct{ pool *sql.DB }

func (p foreignPool) acquire(ctx context.Context, limit time.Duration) (*sql.Conn, error) {
	return Borrow(ctx, p.pool, limit)
}

func (p foreignPool) release(conn *sql.Conn, _ error) { _ = conn.Close() }

// statementCtx returns a context that never ends, since other drivers may interrupt a write and
// leave its outcome unknown.
func (p foreignPool) statementCtx(ctx context.Context) context.Context {
	return context.WithoutCancel(ctx)
}

func (p foreignPool) lost(ctx context.Context, conn *sql.Conn) bool {
	return !inTransaction(func(query string) error {
		_, err := conn.ExecContext(ctx, query)
		return err
	})
}

func (p foreignPool) close() error { return nil }

// Borrow takes a connection from pool. It waits for up to limit, including the time spent waiting for locks while a
// connection is opened. On timeout it returns an ErrBusy that mentions the pool.
func Borrow(ctx context.Context, pool *sql.DB, limit time.Duration) (conn *sql.Conn, err error) {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err = Retry(ctx, limit, func() (err error) {
		conn, err = pool.Conn(limited)
		return err
	})
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return nil, fmt.Errorf("%w: no connection of the pool became free within %v", engine.ErrBusy, limit)
	}
	return conn, err
}
