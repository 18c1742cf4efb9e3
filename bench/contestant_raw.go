package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/honker-go/honker"
)

// raw is the ceiling: the bare driver on the tables of honker, doing the least that a queue must
// do. It prepares each statement once, on a single connection. It works in a single loop,
// regardless of the number of workers. An idle loop polls data_version every millisecond, like
// honker's bindings for other languages.
func raw() Contestant {
	return Contestant{
		Name:  ceilingName,
		About: "modernc.org/sqlite on honker's tables, statements prepared once, one connection; claims 128 jobs at once; an idle loop reads data_version every millisecond",
		Best:  1,
		Open: func(ctx context.Context, path string, d Durability) (Queue, error) {
			return openRaw(ctx, path, d)
		},
	}
}

const ceilingName = "raw"

const (
	rawColumns = `INSERT INTO _honker_live (queue, payload, priority, run_at, max_attempts, created_at) VALUES `
	rawRow     = `(?, ?, ?, ?, ?, ?)`
	// The simplest possible claim: it ignores overdue jobs and takes a single priority.
	rawClaim = `UPDATE _honker_live SET state = 'processing', worker_id = 'raw', claim_expires_at = ?1, attempts = attempts + 1
WHERE id IN (SELECT id FROM _honker_live INDEXED BY _honkerx_live_pending
  WHERE queue = 'bench' AND state = 'pending' AND priority = ?4 AND run_at <= ?2 AND attempts < max_attempts LIMIT ?3)
RETURNING id, payload, priority, run_at, attempts, max_attempts, created_at, expires_at`
	rawAck = `DELETE FROM _honker_live WHERE id IN (SELECT value FROM json_each(?1)) AND worker_id = 'raw' AND claim_expires_at >= ?2`
)

type rawQueue struct {
	pool    *sql.DB
	mu      sync.Mutex // guards the connection of enqueue from BEGIN to COMMIT
	enqueue *rawConn
	work    *rawConn
	stream  *rawConn
}

// rawConn is a connection with its prepared statements.
type rawConn struct {
	conn  *sql.Conn
	stmts map[string]*sql.Stmt
}

func openRaw(ctx context.Context, path string, d Durability) (*rawQueue, error) {
	db, err := honker.Open(ctx, path, nil) // creates the schema
	if err != nil {
		return nil, err
	}
	if err := db.Close(); err != nil {
		return nil, err
	}
	pool, err := openPool(path, d)
	if err != nil {
		return nil, err
	}
	r := &rawQueue{pool: pool}
	for _, c := range []**rawConn{&r.enqueue, &r.work, &r.stream} {
		if *c, err = newRawConn(ctx, pool); err != nil {
			return nil, err
		}
	}
	_, err = pool.ExecContext(ctx, businessSchema)
	return r, err
}

func newRawConn(ctx context.Context, pool *sql.DB) (*rawConn, error) {
	conn, err := pool.Conn(ctx)
	return &rawConn{conn, map[string]*sql.Stmt{}}, err
}

// stmt returns the prepared statement for query. Statements run without a cancelable context, for
// which the driver would start a goroutine each time.
func (c *rawConn) stmt(query string) (*sql.Stmt, error) {
	if s := c.stmts[query]; s != nil {
		return s, nil
	}
	s, err := c.conn.PrepareContext(context.Background(), query)
	if err == nil {
		c.stmts[query] = s
	}
	return s, err
}

func (c *rawConn) exec(query string, args ...any) error {
	s, err := c.stmt(query)
	if err == nil {
		_, err = s.ExecContext(context.Background(), args...)
	}
	return err
}

// tx runs f between BEGIN IMMEDIATE and COMMIT.
func (c *rawConn) tx(f func() error) error {
	if err := c.exec("BEGIN IMMEDIATE"); err != nil {
		return err
	}
	if err := f(); err != nil {
		_ = c.exec("ROLLBACK")
		return err
	}
	return c.exec("COMMIT")
}

func (r *rawQueue) insert(queue string, n int64, priority int) error {
	now := time.Now().Unix()
	return r.enqueue.exec(rawColumns+rawRow, queue, payloadText(n), priority, now, 3, now)
}

func (r *rawQueue) Enqueue(_ context.Context, n int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.insert("bench", n, 0)
}

func (r *rawQueue) EnqueueElsewhere(context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.insert(elsewhere, 0, 0)
}

func (r *rawQueue) EnqueueBatch(_ context.Context, n int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now().Unix()
	args := make([]any, 0, 6*n)
	for i := range n {
		args = append(args, "bench", payloadText(int64(i)), 0, now, 3, now)
	}
	return r.enqueue.exec(rawColumns+strings.TrimSuffix(strings.Repeat(rawRow+",", n), ","), args...)
}

func (r *rawQueue) EnqueueTx(context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.enqueue.tx(func() error {
		if err := r.enqueue.exec(insertOrder); err != nil {
			return err
		}
		return r.insert("bench", 0, 0)
	})
}

// Work acks a batch and claims the next in a single transaction.
func (r *rawQueue) Work(ctx context.Context, _ int, handle func(n int64)) error {
	var held []int64
	var seen int64
	for ctx.Err() == nil {
		jobs, err := r.turn(held, 128)
		if err != nil {
			return err
		}
		held = held[:0]
		for _, j := range jobs {
			handle(j.n)
			held = append(held, j.id)
		}
		if len(held) == 0 {
			if seen, err = r.work.waitForCommit(ctx, seen, time.Millisecond); err != nil {
				return err
			}
		}
	}
	return r.work.exec(rawAck, jsonIDs(held), time.Now().Unix())
}

type rawJob struct{ id, n int64 }

func (r *rawQueue) turn(held []int64, most int) (jobs []rawJob, err error) {
	if len(held) == 0 {
		return r.claim(most, 0)
	}
	now := time.Now().Unix()
	err = r.work.tx(func() error {
		if err := r.work.exec(rawAck, jsonIDs(held), now); err != nil {
			return err
		}
		jobs, err = r.claim(most, 0)
		return err
	})
	return jobs, err
}

func (r *rawQueue) claim(most, priority int) (jobs []rawJob, err error) {
	s, err := r.work.stmt(rawClaim)
	if err != nil {
		return nil, err
	}
	now := time.Now().Unix()
	rows, err := s.QueryContext(context.Background(), now+30, now, most, priority)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		j, err := scanRawJob(rows)
		if err != nil {
			return nil, err
		}
		jobs = append(jobs, j)
	}
	return jobs, rows.Err()
}

func scanRawJob(rows *sql.Rows) (j rawJob, err error) {
	var priority, runAt, attempts, maxAttempts, createdAt int64
	var expiresAt sql.NullInt64
	var text []byte
	if err := rows.Scan(&j.id, &text, &priority, &runAt, &attempts, &maxAttempts, &createdAt, &expiresAt); err != nil {
		return j, err
	}
	j.n, err = readPayload(text)
	return j, err
}

func jsonIDs(ids []int64) string {
	text, err := json.Marshal(ids)
	if err != nil {
		panic(err) // cannot happen for integers
	}
	return string(text)
}

// waitForCommit polls data_version until another connection has committed since seen.
func (c *rawConn) waitForCommit(ctx context.Context, seen int64, interval time.Duration) (version int64, err error) {
	s, err := c.stmt("PRAGMA data_version")
	if err != nil {
		return 0, err
	}
	every := time.NewTicker(interval)
	defer every.Stop()
	for {
		err := s.QueryRowContext(context.Background()).Scan(&version)
		if err != nil || version != seen {
			return version, err
		}
		select {
		case <-ctx.Done():
			return version, nil
		case <-every.C:
		}
	}
}

// WorkTx claims a job, inserts its receipt and acks it in a single transaction.
func (r *rawQueue) WorkTx(ctx context.Context, _ int, handle func(n int64)) error {
	for ctx.Err() == nil {
		jobs, err := r.one(func(j rawJob) error { return r.work.exec(insertReceipt, j.id) })
		if err != nil || len(jobs) == 0 {
			return err
		}
		handle(jobs[0].n)
	}
	return nil
}

func (r *rawQueue) one(f func(rawJob) error) (jobs []rawJob, err error) {
	err = r.work.tx(func() error {
		if jobs, err = r.claim(1, 0); err != nil || len(jobs) == 0 {
			return err
		}
		if err := f(jobs[0]); err != nil {
			return err
		}
		return r.work.exec(rawAck, jsonIDs([]int64{jobs[0].id}), time.Now().Unix())
	})
	return jobs, err
}

// ClaimAck commits twice, because a handler would run between a claim and its ack.
func (r *rawQueue) ClaimAck(context.Context) error {
	jobs, err := r.claim(1, 0)
	if err == nil && len(jobs) != 1 {
		err = fmt.Errorf("claimed %d jobs", len(jobs))
	}
	if err != nil {
		return err
	}
	return r.work.exec(rawAck, jsonIDs([]int64{jobs[0].id}), time.Now().Unix())
}

func (r *rawQueue) Fill(ctx context.Context, kind Kind, n int) error {
	return fillHonker(ctx, r.pool, kind, n)
}

func (r *rawQueue) Unfinished(ctx context.Context) (int, error) {
	return count(ctx, r.pool, "_honker_live")
}

// Idle does nothing: an open database without a queue is the floor.
func (r *rawQueue) Idle(ctx context.Context, _, _ int) error {
	<-ctx.Done()
	return nil
}

func (r *rawQueue) SQL() *sql.DB { return r.pool }

func (r *rawQueue) Close() error {
	for _, c := range []*rawConn{r.enqueue, r.work, r.stream} {
		for _, s := range c.stmts {
			_ = s.Close()
		}
		_ = c.conn.Close()
	}
	return r.pool.Close()
}
