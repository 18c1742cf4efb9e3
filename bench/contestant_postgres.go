package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
)

// The durabilities of PostgreSQL, as settings of a database: that of a new server, where a commit waits for the disk, and
// that of a server which may lose the last commits in a crash.
const (
	Synchronous  Durability = "synchronous_commit = on"
	Asynchronous Durability = "synchronous_commit = off"
)

// onPostgres reports whether a turn runs on the server.
func (d Durability) onPostgres() bool { return d == Synchronous || d == Asynchronous }

// postgresContestants returns the contestants on the server, or none if it is not installed.
func postgresContestants() []Contestant {
	if postgresVersion() == "" {
		return nil
	}
	return []Contestant{rawPostgres(), honkerPostgres(), riverPostgresTuned(), riverPostgres()}
}

type (
	// Numberer adds n jobs that pass first and the following numbers to their handlers.
	Numberer interface {
		EnqueueNumbers(ctx context.Context, first int64, n int) error
	}
	// Ager leaves the dead tuples of n jobs that were added, claimed and finished.
	Ager interface {
		Age(ctx context.Context, n int) error
	}
)

// connections is the size of the pool of a contestant whose authors name none.
const connections = 70

// database is the database of a turn with the pool of a contestant.
type database struct {
	dsn  string
	made bool // by this process, which drops it
	pool *pgxpool.Pool
	sql  *sql.DB
}

func openDatabase(ctx context.Context, path string, d Durability) (*database, error) {
	dsn, made, err := postgresDSN(ctx, path, d)
	if err != nil {
		return nil, err
	}
	pool, err := pgxpool.New(ctx, fmt.Sprint(dsn, " pool_max_conns=", connections))
	if err != nil {
		return nil, err
	}
	return &database{dsn, made, pool, stdlib.OpenDBFromPool(pool)}, nil
}

func (d *database) SQL() *sql.DB { return d.sql }

func (d *database) Close() error {
	err := d.sql.Close()
	d.pool.Close()
	return errors.Join(err, d.drop())
}

// drop drops the database if this process has made it.
func (d *database) drop() error {
	if !d.made {
		return nil
	}
	return dropPostgres(context.Background(), d.dsn)
}

// age runs statements that age n jobs. The first statement adds as many jobs as its first parameter says.
func (d *database) age(ctx context.Context, n int, add string, then ...string) error {
	const step = 100_000 // keeps a statement's memory low
	for left := n; left > 0; left -= step {
		if _, err := d.pool.Exec(ctx, add, min(step, left), payloadText(0)); err != nil {
			return err
		}
	}
	for _, query := range then {
		if _, err := d.pool.Exec(ctx, query); err != nil {
			return err
		}
	}
	return nil
}

// rawPostgres is the ceiling: pgx on a table with the fewest columns, and a loop that acks a batch and claims the next in
// a single statement.
func rawPostgres() Contestant {
	return Contestant{
		Name:  ceilingName,
		About: "pgxpool on a table of its own with 5 columns, prepared statements; two loops that each ack and claim 256 jobs in a single statement with SKIP LOCKED; an idle loop claims each millisecond",
		Open: func(ctx context.Context, path string, d Durability) (Queue, error) {
			db, err := openDatabase(ctx, path, d)
			if err != nil {
				return nil, err
			}
			if db.made {
				_, err = db.pool.Exec(ctx, rawSchema)
			}
			return &rawPostgresQueue{db, make(chan struct{}, 1)}, err
		},
	}
}

const (
	rawSchema = `CREATE TABLE job (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, run_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  queue text NOT NULL, payload text NOT NULL, claimed_until timestamptz);
CREATE INDEX job_waits ON job (queue, run_at, id) WHERE claimed_until IS NULL;
` + rawStreamSchema
	rawInsert     = `INSERT INTO job (queue, payload) VALUES ('bench', $1) RETURNING id`
	rawInsertMany = `INSERT INTO job (queue, payload) SELECT 'bench', unnest($1::text[]) RETURNING id`
	rawStep       = `WITH acked AS (DELETE FROM job WHERE id = ANY($1::bigint[]))
UPDATE job SET claimed_until = clock_timestamp() + interval '1 minute' WHERE ctid = ANY(ARRAY(
  SELECT ctid FROM job WHERE queue = 'bench' AND claimed_until IS NULL AND run_at <= clock_timestamp() ORDER BY run_at, id LIMIT $2 FOR UPDATE SKIP LOCKED))
RETURNING id, payload`
	rawDelete = `DELETE FROM job WHERE id = ANY($1::bigint[])`

	rawBatch = 256 // as many as honker claims ahead
	rawLoops = 2
)

type rawPostgresQueue struct {
	*database
	added chan struct{} // an enqueue of this process; capacity 1
}

func (r *rawPostgresQueue) Enqueue(ctx context.Context, n int64) error {
	err := r.pool.QueryRow(ctx, rawInsert, payloadText(n)).Scan(new(int64))
	select {
	case r.added <- struct{}{}:
	default:
	}
	return err
}

func (r *rawPostgresQueue) EnqueueBatch(ctx context.Context, n int) error {
	return r.EnqueueNumbers(ctx, 0, n)
}

func (r *rawPostgresQueue) EnqueueNumbers(ctx context.Context, first int64, n int) error {
	texts := make([]string, n)
	for i := range texts {
		texts[i] = payloadText(first + int64(i))
	}
	rows, err := r.pool.Query(ctx, rawInsertMany, texts)
	if err != nil {
		return err
	}
	_, err = pgx.CollectRows(rows, pgx.RowTo[int64])
	return err
}

// Work runs the loops. Handlers run in them.
func (r *rawPostgresQueue) Work(ctx context.Context, workers int, handle func(n int64)) error {
	return each(min(workers, rawLoops), func(int) error { return r.loop(ctx, handle) })
}

func (r *rawPostgresQueue) loop(ctx context.Context, handle func(n int64)) error {
	held := []int64{}
	for ctx.Err() == nil {
		rows, err := r.pool.Query(context.WithoutCancel(ctx), rawStep, held, rawBatch)
		if err != nil {
			return err
		}
		jobs, err := pgx.CollectRows(rows, scanRawPostgres)
		if err != nil {
			return err
		}
		held = held[:0]
		for _, j := range jobs {
			handle(j.n)
			held = append(held, j.id)
		}
		if len(held) == 0 {
			r.rest(ctx)
		}
	}
	_, err := r.pool.Exec(context.WithoutCancel(ctx), rawDelete, held)
	return err
}

func scanRawPostgres(row pgx.CollectableRow) (j rawJob, err error) {
	var text []byte
	if err := row.Scan(&j.id, &text); err != nil {
		return j, err
	}
	j.n, err = readPayload(text)
	return j, err
}

// rest waits for an enqueue of this process, or a millisecond.
func (r *rawPostgresQueue) rest(ctx context.Context) {
	soon := time.NewTimer(time.Millisecond)
	defer soon.Stop()
	select {
	case <-r.added:
	case <-soon.C:
	case <-ctx.Done():
	}
}

func (r *rawPostgresQueue) Age(ctx context.Context, n int) error {
	return r.age(ctx, n, `INSERT INTO job (queue, payload) SELECT 'bench', $2 FROM generate_series(1, $1::int)`,
		`UPDATE job SET claimed_until = clock_timestamp()`, `DELETE FROM job`)
}

func (r *rawPostgresQueue) Unfinished(ctx context.Context) (int, error) {
	return count(ctx, r.sql, "job")
}

// ledger of jobs: each must run once.
type jobLedger map[int64]int

// readJobs adds the jobs that another process has printed.
func (l jobLedger) readJobs(line string) error {
	var ran []int64
	if err := json.Unmarshal([]byte(line), &ran); err != nil {
		return errors.New(line)
	}
	for _, n := range ran {
		l[n]++
	}
	return nil
}

// verify checks that no job has run twice, that none is invented, and that those that the database calls finished have
// run.
func (l jobLedger) verify(added, unfinished int) error {
	for n, times := range l {
		if times > 1 || n < 1 || n > int64(added) {
			return fmt.Errorf("job %d of %d has run %d times", n, added, times)
		}
	}
	if len(l) < added-unfinished {
		return fmt.Errorf("of %d jobs %d have run, and %d are not finished", added, len(l), unfinished)
	}
	return nil
}
