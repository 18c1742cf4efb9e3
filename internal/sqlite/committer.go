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
)

// Op is one small write. It runs inside a transaction that may carry others.
type Op interface {
	// Run executes the statements at the time now. When it returns an error,
	// nothing of it stays. It may be called again after a failure.
	Run(ctx context.Context, q Querier, now time.Time) error
	// Single says that Run is one statement, which SQLite undoes by itself.
	Single() bool
}

// Committer turns the small writes of many goroutines into few commits.
//
// There is no goroutine and no timer behind it: a caller that finds no leader becomes
// one, runs whatever waits, commits once, answers all of the batch and passes the lead to
// the next request. So a caller alone waits for no other, and under load a commit carries
// many. The batch grows by itself: while one commit is on its way, more requests arrive.
type Committer struct {
	source Source
	limit  time.Duration // how long an op may wait to be started
	bound  time.Duration // of one batch

	mu      sync.Mutex
	waiting []*request // in order of arrival; the leader's own is the first
	leading bool
	closed  bool
	idle    sync.Cond // leading became false

	lastBatchSize int // the leader's: expect as many again
}

// Bounds of one commit: application transactions and other processes want the writer too,
// and the first op of a batch is answered no sooner than the last.
const (
	maxBatch     = 512
	maxBatchTime = 10 * time.Millisecond
)

// request is a caller's op in the queue.
type request struct {
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

// Do runs op in a transaction and returns when that is committed: on its caller's own
// goroutine, or on that of another caller, the leader.
//
// A ctx that ends before op has started withdraws it. Once started, Do returns the
// real outcome.
func (c *Committer) Do(ctx context.Context, op Op) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	r := &request{op: op}
	// The array of the queue may hold r until others take its place: not what op has read, too.
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

// join queues r; true makes its caller the leader. Whether there is a leader and whether r
// is in the queue is decided under one lock, so no request is left without a leader.
func (c *Committer) join(r *request) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false, ErrClosed
	}
	c.waiting = append(c.waiting, r)
	if !c.leading {
		c.leading, r.chosen = true, true
		return true, nil
	}
	r.call = make(chan bool, 1) // a leader of one op needs none
	return false, nil
}

// wait returns true when r has to lead, and its outcome otherwise. The limit is for a
// request that is not started: a batch that is under way ends by itself.
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
	// Too late: it had started, or was called to lead. To return now would be to guess
	// the outcome, or to leave the queue without a leader.
	lead := <-r.call
	return lead, r.err
}

// withdraw takes r out of the queue; false when it is no longer there or leads. One that
// was told to lead is still in the queue, but the call is in its channel.
func (c *Committer) withdraw(r *request) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !r.chosen && c.removeLocked(r)
}

func (c *Committer) removeLocked(r *request) bool {
	// A walk: it happens when a caller gives up, and the queue is as long as there are
	// callers.
	for i, other := range c.waiting {
		if other == r {
			c.waiting = append(c.waiting[:i], c.waiting[i+1:]...)
			return true
		}
	}
	return false
}

// lead runs one batch, its own request first, and passes the lead on: a leader that went
// on would keep its caller from an answer that is known.
func (c *Committer) lead(ctx context.Context, own *request) error {
	defer c.passOn()
	conn, err := c.source.acquire(ctx, c.limit)
	if err != nil {
		return c.fail(own, err)
	}
	// A caller alone must not pay for this with each of its commits.
	if c.lastBatchSize > 1 {
		// Those just answered are on their way back: let them join. Worth a third of the
		// throughput: a plain Enqueue takes 28 µs with it and 40 without among 8 callers,
		// 19 and 27 among 64 (medians of 3, two cores).
		runtime.Gosched()
	}
	// After the connection: while it was waited for, others may have joined.
	if r := c.takeAlone(); r != nil {
		return c.runAlone(ctx, conn, r)
	}
	if err := c.begin(ctx, conn); err != nil {
		c.source.release(conn, err)
		return c.fail(own, err)
	}
	batch, err := c.run(conn)
	// Before the answers: a caller that closes the pool next must find it complete.
	c.source.release(conn, err)
	for _, r := range batch {
		if r != own {
			close(r.call)
		}
	}
	return own.err
}

// begin takes the write lock at once: a batch that began with a read could lose the right
// to write to another process. On a wrapped connection the BEGIN enters the gate first, see
// conn.control.
func (c *Committer) begin(ctx context.Context, conn *sql.Conn) error {
	inner := c.source.statementCtx(ctx)
	return Retry(ctx, c.limit, func() error {
		_, err := conn.ExecContext(inner, "BEGIN IMMEDIATE")
		return err
	})
}

// runAlone runs r as a transaction of one statement, which needs no BEGIN and no COMMIT:
// the common case of a process with little to do.
func (c *Committer) runAlone(ctx context.Context, conn *sql.Conn, r *request) error {
	inner := c.source.statementCtx(ctx)
	err := Retry(ctx, c.limit, func() error { return safely(inner, conn, r.op, time.Now()) })
	c.source.release(conn, err)
	c.lastBatchSize = 1
	return err
}

// takeAlone takes the leader's op off the queue if it needs no transaction around it.
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

// run executes what waits, and what comes meanwhile, and commits. Every request of
// the batch has its outcome when it returns.
func (c *Committer) run(conn *sql.Conn) ([]*request, error) {
	batch, err := c.runWaiting(conn)
	c.lastBatchSize = len(batch)
	if err == nil {
		err = c.commit(conn)
	}
	if err == nil {
		return batch, nil
	}
	// Whether or not SQLite has done so by itself: an error here says nothing new.
	_, _ = conn.ExecContext(context.Background(), "ROLLBACK")
	for _, r := range batch {
		if r.err == nil { // one that failed by itself keeps its own error
			r.err = fmt.Errorf("the commit that carried it failed: %w", err)
		}
	}
	return batch, err
}

// runWaiting executes requests until none waits or a bound is reached. Its error is one
// that takes the whole transaction with it; then the requests that it has taken and not
// run are in the batch too, since they have left the queue.
func (c *Committer) runWaiting(conn *sql.Conn) (batch []*request, err error) {
	now := time.Now() // one time for all that is committed together
	// The first round whatever the time: the leader's op is in it, and the machine may have taken
	// the processor away since now was read.
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

// commit waits for readers where the journal is a rollback journal: there the last page lock
// is taken by the COMMIT. It is not withdrawn: the ops have run, and their callers are to hear
// what became of them.
func (c *Committer) commit(conn *sql.Conn) error {
	return Retry(context.Background(), c.limit, func() error {
		_, err := conn.ExecContext(context.Background(), "COMMIT")
		return err
	})
}

// runOne runs r so that its failure is its own. The error it returns is one that
// takes the whole transaction with it.
func (c *Committer) runOne(conn *sql.Conn, r *request, now time.Time, first bool) error {
	ctx := context.Background() // its caller's may end; the others' has not
	if r.op.Single() {
		if r.err = safely(ctx, conn, r.op, now); r.err == nil {
			return nil
		}
		if isFatal(r.err) || c.source.lost(ctx, conn) {
			return r.err
		}
		return nil
	}
	if first {
		return runFirst(ctx, conn, r, now)
	}
	// From the second one on, what others have written must outlive a failure of this one.
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

// runFirst needs no savepoint, under which SQLite copies every page before it is
// changed: there is nothing yet that must not be undone.
func runFirst(ctx context.Context, conn *sql.Conn, r *request, now time.Time) error {
	if r.err = safely(ctx, conn, r.op, now); r.err == nil {
		return nil
	}
	_, _ = conn.ExecContext(ctx, "ROLLBACK") // which SQLite may have done already
	_, err := conn.ExecContext(ctx, "BEGIN IMMEDIATE")
	return err
}

// safely makes an error of a panic: the leader runs the ops of others, and owes them an
// answer and the lead.
func safely(ctx context.Context, conn *sql.Conn, op Op, now time.Time) (err error) {
	defer func() {
		if p := panicError(recover()); p != nil {
			err = p
		}
	}()
	return op.Run(ctx, conn, now)
}

// isFatal picks the errors after which SQLite may have rolled everything back, or the
// connection is of no more use.
func isFatal(err error) bool {
	switch Code(err) & 0xff {
	case codeFull, codeIOErr, codeNoMem, codeInterrupt, codeCorrupt, codeCantOpen:
		return true
	}
	return errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrConnDone)
}

// take moves up to n requests from the queue into the running batch.
func (c *Committer) take(n int) []*request {
	c.mu.Lock()
	defer c.mu.Unlock()
	// Capped, so that an append to the queue copies it instead of growing into the batch.
	n = min(n, len(c.waiting))
	if n == 0 {
		return nil
	}
	taken := c.waiting[:n:n]
	c.waiting = c.waiting[n:]
	return taken
}

// fail withdraws the leader's op alone. What it met may be its own, such as its ctx: each
// of the others tries for itself.
func (c *Committer) fail(own *request, err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.removeLocked(own)
	return err
}

// passOn calls the next request's caller, after the leader has its answer.
func (c *Committer) passOn() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waiting) == 0 {
		c.leading = false
		c.idle.Broadcast()
		return
	}
	// It stays in the queue: it is the first op of its own batch.
	next := c.waiting[0]
	next.chosen = true
	next.call <- true
}

// Close refuses further ops and returns when those that wait are done.
func (c *Committer) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true // before the wait: no later op can keep a leader at work
	for c.leading {
		c.idle.Wait()
	}
	return c.source.close()
}

// Source lends the connection that a batch is written on, to one committer: its leader
// uses it, and there is one leader at a time.
type Source interface {
	// acquire returns a connection, waiting for it up to limit.
	acquire(ctx context.Context, limit time.Duration) (*sql.Conn, error)
	// release takes it back; err is what went wrong with it, if anything.
	release(conn *sql.Conn, err error)
	// statementCtx is the ctx of a statement that takes the write lock under ctx.
	statementCtx(ctx context.Context) context.Context
	// lost tells whether an error has taken the transaction of conn away, as a
	// trigger's ROLLBACK does, so that what follows would commit by itself.
	lost(ctx context.Context, conn *sql.Conn) bool
	close() error
}

// OwnPool is a pool that a Connector feeds. One connection is kept from batch to batch:
// its statements stay prepared, and a commit saves the way through the pool.
func OwnPool(pool *sql.DB) Source { return &ownPool{pool: pool} }

// ForeignPool is an application's pool, of any driver. A connection is borrowed for each
// batch: the pool may be small, and the application has to get at it.
func ForeignPool(pool *sql.DB) Source { return foreignPool{pool} }

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
		_ = p.close() // the pool decides whether the connection is still good
	}
}

// statementCtx is ctx: our connections wait by it, and do not interrupt a write.
func (p *ownPool) statementCtx(ctx context.Context) context.Context { return ctx }

// lost is never said here: our connections notice it themselves, and refuse all that
// follows, the COMMIT included.
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

// statementCtx does not end: a driver may interrupt a write, and its outcome is unknown
// then.
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

// Borrow takes a connection out of pool. It waits up to limit, also where the opening of one
// meets the lock of another connection, and names the pool when there is none.
func Borrow(ctx context.Context, pool *sql.DB, limit time.Duration) (conn *sql.Conn, err error) {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err = Retry(ctx, limit, func() (err error) {
		conn, err = pool.Conn(limited)
		return err
	})
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return nil, fmt.Errorf("%w: no connection of the pool came free in %v", ErrBusy, limit)
	}
	return conn, err
}
