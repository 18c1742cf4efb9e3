//go:build unix

package honkerpg_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkerpg"
)

// pythonVar names the environment variable with the path of a Python that has psycopg. The tests are skipped if it is
// not set; .ci/psycopg installs psycopg and sets it.
const pythonVar = "HONKER_PSYCOPG"

// python returns a command that runs a program with arguments.
func python(t *testing.T, program string, args ...string) *exec.Cmd {
	t.Helper()
	interpreter := os.Getenv(pythonVar)
	if interpreter == "" {
		t.Skip(pythonVar + " is not set: .ci/psycopg installs psycopg and sets it")
	}
	command := exec.CommandContext(t.Context(), interpreter, append([]string{program}, args...)...)
	command.Stderr = new(bytes.Buffer)
	return command
}

// sharedQueue opens a DB, and a pool on its database, which has a table of the numbers that were sent.
func sharedQueue(t *testing.T) (dsn string, q *honker.Queue[numbered], f *foreign) {
	t.Helper()
	python(t, "") // skips the test before anything is made
	dsn = database(t)
	db, err := honkerpg.Open(t.Context(), dsn, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	pool, err := pgxpool.New(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	f = &foreign{t, pool, "honker"}
	f.exec(`CREATE TABLE sent (number int, who text)`)
	return dsn, honker.NewQueue[numbered](db, "mails", nil), f
}

type numbered struct {
	Number int `json:"number"`
}

// A job that Python enqueues in a transaction of its own runs if that commits, and does not exist if it rolls back.
func TestSQL_Psycopg_Enqueue(t *testing.T) {
	dsn, q, f := sharedQueue(t)
	out, err := python(t, filepath.Join("testdata", "enqueue.py"), dsn).Output()
	require.NoError(t, err, "%s", out)
	var got []int
	n, err := q.WorkDue(t.Context(), func(_ context.Context, job *honker.Job[numbered]) error {
		require.Equal(t, map[string]string{"from": "python"}, job.Headers)
		got = append(got, job.Args.Number)
		return nil
	}, &honker.WorkOptions{Workers: 1})
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Equal(t, []int{1}, got)
	require.Equal(t, 1, ask[int](f, `SELECT count(*) FROM sent`), "the row of the transaction")
}

// The worker of the page and workers of Go share a queue. Each job has its effect once.
func TestSQL_Psycopg_Work(t *testing.T) {
	dsn, q, f := sharedQueue(t)
	program := filepath.Join(t.TempDir(), "worker.py")
	var text string
	for _, b := range blocks(t, pageOfFunctions) {
		if b.language == "python" {
			text += b.text
		}
	}
	require.NoError(t, os.WriteFile(program, []byte(text), 0o600))
	enqueue := func(from, to int) {
		f.exec(`SELECT honker.enqueue_many('mails', ARRAY(SELECT jsonb_build_object('number', n) FROM generate_series($1::int, $2::int) n))`, from, to)
	}
	enqueue(1, 10)
	worker := python(t, program, dsn)
	require.NoError(t, worker.Start())
	done := make(chan struct{})
	go func() {
		_ = worker.Wait() // it is killed at the end
		close(done)
	}()
	defer func() {
		_ = worker.Process.Kill()
		<-done
	}()
	wait := func(query string) {
		t.Helper()
		for limit := time.Now().Add(time.Minute); !ask[bool](f, query); {
			select {
			case <-done:
				t.Fatalf("the worker has ended: %s", worker.Stderr)
			case <-time.After(10 * time.Millisecond):
				require.True(t, time.Now().Before(limit), query)
			}
		}
	}
	wait(`SELECT count(*) = 10 FROM sent`)
	enqueue(11, 1000)
	wait(`SELECT count(*) > 10 FROM sent`) // it works again, and Go joins

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		ended <- q.WorkTx(ctx, func(ctx context.Context, tx *sql.Tx, job *honker.Job[numbered]) error {
			_, err := tx.ExecContext(ctx, `INSERT INTO sent VALUES ($1, 'go')`, job.Args.Number)
			return err
		}, &honker.WorkOptions{Workers: 2})
	}()
	// A worker that has lost its claim neither acks the job nor keeps its effects.
	wait(`SELECT count(*) = 0 FROM honker.job`)
	cancel()
	if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	require.Equal(t, 1000, ask[int](f, `SELECT count(*) FROM sent`))
	require.Equal(t, 1000, ask[int](f, `SELECT count(DISTINCT number) FROM sent`))
	t.Log(ask[int](f, `SELECT count(*) FROM sent WHERE who = 'python'`), "of them by Python")
}
