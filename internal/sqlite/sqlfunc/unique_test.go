package sqlfunc

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/engine"
)

// enqueueWithOptions calls honkerx_enqueue.
func enqueueWithOptions(pool *sql.DB, payload string, options any) (id int64, err error) {
	err = pool.QueryRow(`SELECT honkerx_enqueue('q', ?, ?)`, payload, options).Scan(&id)
	return id, err
}

// A job without a key is the same as a job from honker_enqueue with the same options.
func TestEnqueueOptions_Plain(t *testing.T) {
	pool := openPool(t)
	for options, args := range map[string]string{
		`{}`:                            `NULL, NULL, 0, 3, NULL`,
		`{"run_at": 7}`:                 `7, NULL, 0, 3, NULL`,
		`{"delay": 5, "run_at": 7}`:     `7, 5, 0, 3, NULL`,
		`{"priority": -2, "expires":0}`: `NULL, NULL, -2, 3, 0`,
		`{"max_attempts": 9}`:           `NULL, NULL, 0, 9, NULL`,
	} {
		row := func(call string) (text string) {
			tx, err := pool.Begin()
			require.NoError(t, err)
			defer tx.Rollback()
			_, err = tx.Exec(`SELECT ` + call)
			require.NoError(t, err)
			require.NoError(t, tx.QueryRow(`SELECT concat_ws('|', queue, payload, state, priority, run_at - iif(run_at > 99, unixepoch(), 0),
				attempts, max_attempts, expires_at - created_at) FROM _honker_live`).Scan(&text))
			return text
		}
		for {
			second := time.Now().Unix()
			want, got := row(`honker_enqueue('q', '1', `+args+`)`), row(`honkerx_enqueue('q', '1', '`+options+`')`)
			if time.Now().Unix() != second {
				continue // the second may have changed between the two calls
			}
			require.Equal(t, want, got, options)
			break
		}
	}
	_, err := enqueueWithOptions(pool, "1", nil)
	require.NoError(t, err)
}

// Applications' triggers can use unique keys with all their options.
func TestEnqueueOptions_Trigger(t *testing.T) {
	pool := openPool(t)
	for _, statement := range []string{
		`CREATE TABLE orders (id INTEGER PRIMARY KEY, customer TEXT)`,
		`CREATE TRIGGER invoice AFTER INSERT ON orders BEGIN
			SELECT honkerx_enqueue('q', json_object('customer', NEW.customer, 'order', NEW.id), '{"unique_args": ["customer"], "conflict": "replace"}');
		END`,
		`INSERT INTO orders (customer) VALUES ('ann'), ('bob'), ('ann')`,
		`INSERT INTO orders (customer) VALUES ('ann')`,
	} {
		_, err := pool.Exec(statement)
		require.NoError(t, err)
	}
	var jobs string
	require.NoError(t, pool.QueryRow(`SELECT group_concat(payload, ' ') FROM _honker_live`).Scan(&jobs))
	require.Equal(t, `{"customer":"ann","order":4} {"customer":"bob","order":2}`, jobs)

	tx, err := pool.Begin()
	require.NoError(t, err)
	_, err = tx.Exec(`INSERT INTO orders (customer) VALUES ('cleo')`)
	require.NoError(t, err)
	require.NoError(t, tx.Rollback())
	var keys int
	require.NoError(t, pool.QueryRow(`SELECT count(*) FROM _honkerx_unique`).Scan(&keys))
	require.Equal(t, 2, keys)
}

// The trigger created for the first key in a file is rolled back with its statement, and created again by the next.
func TestEnqueueOptions_FirstKeyUndone(t *testing.T) {
	pool := openPool(t)
	pool.SetMaxOpenConns(1)
	for _, statement := range []string{
		`CREATE TABLE orders (id INTEGER PRIMARY KEY, n INTEGER CHECK (n < 3))`,
		`CREATE TRIGGER job AFTER INSERT ON orders BEGIN SELECT honkerx_enqueue('q', NEW.n || '', '{"unique": "k", "until": "started"}'); END`,
	} {
		_, err := pool.Exec(statement)
		require.NoError(t, err)
	}
	_, err := pool.Exec(`INSERT INTO orders (n) VALUES (1), (2), (3)`)
	require.ErrorContains(t, err, "CHECK")
	var left string
	const state = `SELECT (SELECT count(*) FROM _honker_live) || ' ' || (SELECT count(*) FROM _honkerx_unique) || ' ' ||
		(SELECT count(*) FROM sqlite_schema WHERE name GLOB '_honkerx_unique_*' AND type = 'trigger')`
	require.NoError(t, pool.QueryRow(state).Scan(&left))
	require.Equal(t, "0 0 0", left)
	_, err = pool.Exec(`INSERT INTO orders (n) VALUES (1), (2)`)
	require.NoError(t, err)
	require.NoError(t, pool.QueryRow(state).Scan(&left))
	require.Equal(t, "1 1 4", left)
	_, err = pool.Exec(`DELETE FROM _honker_live`)
	require.NoError(t, err)
	require.NoError(t, pool.QueryRow(state).Scan(&left))
	require.Equal(t, "0 0 4", left)
}

// A conflicting key finds the existing job, and changes it according to the options.
func TestEnqueueOptions_Conflict(t *testing.T) {
	pool := openPool(t)
	for i, c := range []struct {
		options string
		job     int64
		payload string // that job's payload afterward, which shows which call set it
	}{
		{`{"unique": "a"}`, 1, "1"},
		{`{"unique": "a", "conflict": "keep", "for": 0.5}`, 1, "1"},
		{`{"unique": "a", "conflict": "again"}`, 1, "3"},
		{`{"unique": "b", "wait": 0.5, "max": 9}`, 2, "4"},
		{`{"unique": "b", "wait": 0.5, "max": 9, "until": "started", "conflict": "replace"}`, 2, "5"},
		{`{"unique_args": []}`, 3, "6"},
	} {
		id, err := enqueueWithOptions(pool, fmt.Sprint(i+1), c.options)
		require.NoError(t, err)
		require.Equal(t, c.job, id, c.options)
		var payload string
		require.NoError(t, pool.QueryRow(`SELECT payload FROM _honker_live WHERE id = ?`, id).Scan(&payload))
		require.Equal(t, c.payload, payload, c.options)
	}
}

// A successor is held, as honker_get_job shows, and cannot be claimed.
func TestEnqueueOptions_Held(t *testing.T) {
	pool := openPool(t)
	for _, statement := range []string{`SELECT honkerx_enqueue('q', '1', '{"unique": "k"}')`, `SELECT honker_claim_batch('q', 'w', 9, 60)`,
		`SELECT honkerx_enqueue('q', '2', '{"unique": "k", "conflict": "again"}')`} {
		_, err := pool.Exec(statement)
		require.NoError(t, err)
	}
	var state, worker string
	const held = `SELECT honker_get_job(2) ->> 'state', ifnull(honker_get_job(2) ->> 'worker_id', 'none')`
	require.NoError(t, pool.QueryRow(held).Scan(&state, &worker))
	require.Equal(t, []string{"held", "none"}, []string{state, worker})
	_, err := pool.Exec(`SELECT honker_ack(1, 'w')`)
	require.NoError(t, err)
	require.NoError(t, pool.QueryRow(held).Scan(&state, &worker))
	require.Equal(t, []string{"pending", "none"}, []string{state, worker})
}

// Invalid options are errors, and change nothing.
func TestEnqueueOptions_Invalid(t *testing.T) {
	pool := openPool(t)
	for _, options := range []string{
		`x`, `[]`, `{"uniq": "k"}`, `{"unique": 1}`, `{"unique": "k"} {}`, `{"delay": 0.5}`,
		`{"unique": ""}`, `{"unique": "a\u0000"}`, `{"unique": "` + strings.Repeat("k", 1025) + `"}`,
		`{"unique": "k", "unique_args": []}`, `{"unique_args": ["missing"]}`, `{"until": "started"}`, `{"for": 1}`, `{"conflict": "again"}`,
		`{"unique": "k", "until": "done"}`, `{"unique": "k", "conflict": "fail"}`, `{"unique": "k", "for": -1}`,
		`{"unique": "k", "wait": 1}`, `{"unique": "k", "max": 1}`, `{"unique": "k", "wait": -1, "max": 1}`, `{"unique": "k", "wait": 2, "max": 1}`,
		`{"unique": "k", "wait": 1, "max": 2, "delay": 1}`, `{"unique": "k", "wait": 1, "max": 2, "run_at": 1}`,
		`{"unique": "k", "wait": 1, "max": 2, "until": "finished"}`, `{"unique": "k", "wait": 1, "max": 2, "conflict": "again"}`,
	} {
		_, err := enqueueWithOptions(pool, `{"n": 1}`, options)
		require.ErrorIs(t, err, engine.ErrInvalid, options)
	}
	var r int
	require.NoError(t, pool.QueryRowContext(context.Background(), `SELECT (SELECT count(*) FROM _honker_live) + (SELECT count(*) FROM _honkerx_unique)`).Scan(&r))
	require.Zero(t, r)
}
