//go:build unix

package honkerpg_test

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	view "github.com/honker-go/honker/admin"
	"github.com/honker-go/honker/honkerpg"
	"github.com/honker-go/honker/honkerpg/internal/pgtest"
	"github.com/honker-go/honker/internal/pgcluster"
	"github.com/honker-go/honker/ui"
)

// pair is a primary with a standby.
type pair struct {
	primary, standby *pgcluster.Cluster
	dsn              string // leads to the one that accepts writes
}

func newPair(t *testing.T, synchronous bool) *pair {
	t.Helper()
	p := &pair{primary: pgtest.Cluster(t)}
	p.standby = pgtest.Standby(t, p.primary, synchronous)
	host := func(c *pgcluster.Cluster) string {
		config, err := pgx.ParseConfig(c.DSN())
		require.NoError(t, err)
		return config.Host
	}
	p.dsn = fmt.Sprintf("host=%s,%s user=honker dbname=postgres target_session_attrs=read-write", host(p.primary), host(p.standby))
	return p
}

// cut ends the replication once all that was committed before the call has arrived.
func (p *pair) cut(t *testing.T) {
	t.Helper()
	at := scalar[string](t, p.primary.DSN(), `SELECT pg_current_wal_flush_lsn()::text`)
	require.Eventually(t, func() bool {
		return scalar[bool](t, p.standby.DSN(), `SELECT pg_last_wal_receive_lsn() >= '`+at+`'`)
	}, time.Minute, 5*time.Millisecond)
	pgtest.Exec(t, p.standby.DSN(), `ALTER SYSTEM SET primary_conninfo = ''`, `SELECT pg_reload_conf()`)
	require.Eventually(t, func() bool {
		return scalar[bool](t, p.primary.DSN(), `SELECT count(*) = 0 FROM pg_stat_replication`)
	}, time.Minute, 5*time.Millisecond)
}

// failOver ends the primary without a shutdown and promotes the standby.
func (p *pair) failOver(t *testing.T) {
	t.Helper()
	require.NoError(t, p.primary.Crash())
	require.NoError(t, p.standby.Promote())
}

// scalar returns the value of a query on a server.
func scalar[T any](t *testing.T, dsn, query string) (value T) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	defer conn.Close(context.Background())
	require.NoError(t, conn.QueryRow(t.Context(), query).Scan(&value))
	return value
}

// warnings collects the warnings of a DB.
type warnings struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (w *warnings) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.buf.Write(p)
}

// count returns the number of warnings with text, or of all warnings if text is "".
func (w *warnings) count(text string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if text == "" {
		return bytes.Count(w.buf.Bytes(), []byte("\n"))
	}
	return bytes.Count(w.buf.Bytes(), []byte(text))
}

func (w *warnings) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

const tookOver = "a standby has taken over"

// failovers is the number of servers that die in a test.
func failovers() int {
	if *faultsFlag > 0 {
		return 5
	}
	return 1
}

// A primary that dies under load loses nothing that was acknowledged if its standby is synchronous, and no effect
// happens twice. Workers and producers go on with the standby, and the new timeline is noticed.
func TestFaults_FailOver(t *testing.T) {
	if testing.Short() {
		t.Skip("starts two servers")
	}
	for range failovers() {
		p, seen := newPair(t, true), &warnings{}
		l := newLoad(t, p.primary.DSN(), p.dsn, honkerpg.Options{Options: honker.Options{Logger: seen.logger()}})
		pause := faultsFor(2*time.Second) / time.Duration(2*failovers())
		l.run(t, func() {
			time.Sleep(pause)
			p.failOver(t)
			l.admin = p.standby.DSN()
			time.Sleep(pause)
		})
		l.check(t)
		require.Equal(t, 1, seen.count(tookOver))
	}
}

// With an asynchronous standby, the commits that were not replicated are lost. No others are, and the rest of the
// application's data agrees with the jobs.
func TestFaults_FailOver_Asynchronous(t *testing.T) {
	if testing.Short() {
		t.Skip("starts two servers")
	}
	for range failovers() {
		p, seen := newPair(t, false), &warnings{}
		l := newLoad(t, p.primary.DSN(), p.dsn, honkerpg.Options{Options: honker.Options{Logger: seen.logger()}})
		pause := faultsFor(2*time.Second) / time.Duration(3*failovers())
		var from, to time.Time
		l.mayLose = func(acknowledged time.Time) bool { return acknowledged.After(from) && acknowledged.Before(to) }
		l.run(t, func() {
			time.Sleep(pause)
			from = time.Now()
			p.cut(t)
			time.Sleep(pause)
			require.NoError(t, p.primary.Crash())
			time.Sleep(100 * time.Millisecond) // the answers of the primary have been noted
			to = time.Now()
			require.NoError(t, p.standby.Promote())
			l.admin = p.standby.DSN()
			time.Sleep(pause)
		})
		l.check(t)
		t.Logf("%d acknowledged calls are lost; replication ended %v before the primary", l.lost, pause)
		require.NotZero(t, l.lost)
		require.Equal(t, 1, seen.count(tookOver))
	}
}

// Numbers of lost commits are not used again: IDs of jobs, which a running handler may still settle, offsets, which a reader
// has passed, and tokens of locks. So a job of the new server is not settled by a handler of a lost one, and a reader misses
// no event. A reader that finds nothing new gets an error, because its offset is above the last event.
func TestFailOver_Numbers(t *testing.T) {
	if testing.Short() {
		t.Skip("starts two servers")
	}
	p, seen := newPair(t, false), &warnings{}
	db, err := honkerpg.Open(t.Context(), p.dsn, &honkerpg.Options{Options: honker.Options{Logger: seen.logger()}})
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	q, s := honker.NewQueue[int](db, "q", nil), honker.NewStream[int](db, "s", nil)
	_, err = s.Publish(t.Context(), 0)
	require.NoError(t, err)
	p.cut(t)
	const lost = 100 // the server skips up to 32 numbers after a crash by itself
	var job, offset, token int64
	for range lost {
		job, err = q.Enqueue(t.Context(), 1)
		require.NoError(t, err)
		offset, err = s.Publish(t.Context(), 1)
		require.NoError(t, err)
		lock, err := db.Lock(t.Context(), "l", nil)
		require.NoError(t, err)
		token = lock.Token()
		require.NoError(t, lock.Unlock(t.Context()))
	}
	claimed, err := q.Claim(t.Context(), "w", lost)
	require.NoError(t, err)
	require.Len(t, claimed, lost)

	waits := make(chan error)
	go func() {
		for _, err := range s.Tail(t.Context(), honker.Offset(offset-1), nil) {
			waits <- err // nil for the last event, and then the error
		}
	}()
	require.NoError(t, <-waits)
	unused := scalar[int64](t, p.standby.DSN(), `SELECT last_value FROM honker.job_id_seq`)
	require.Less(t, unused, job, "the standby would use IDs again")
	p.failOver(t)
	require.ErrorIs(t, <-waits, honker.ErrDatabaseReplaced)

	now, err := q.Enqueue(t.Context(), 2)
	require.NoError(t, err)
	require.Greater(t, now, job)
	first, err := s.Publish(t.Context(), 2)
	require.NoError(t, err)
	require.Greater(t, first, offset)
	for event, err := range s.Read(t.Context(), offset) { // a reader that has slept through it all
		require.NoError(t, err)
		require.Equal(t, 2, event.Data)
	}
	lock, err := db.Lock(t.Context(), "l", nil)
	require.NoError(t, err)
	require.Greater(t, lock.Token(), token)

	_, err = q.Claim(t.Context(), "w", 1)
	require.NoError(t, err)
	for _, j := range claimed {
		require.ErrorIs(t, j.Ack(t.Context()), honker.ErrClaimLost)
	}
	require.Equal(t, 1, seen.count(tookOver))
}

// Numbers are also skipped by a role with the rights that the guide names, which may not set a sequence, and by a verb
// after a failover that no connection has noticed.
func TestFailOver_Rights(t *testing.T) {
	role, dsn := newRole(t)
	schema := pgtest.Schema(t)
	quoted := pgx.Identifier{schema}.Sanitize()
	owner := open(t, honkerpg.Options{Schema: schema})
	admin(t, fmt.Sprintf(`GRANT USAGE ON SCHEMA %[1]s TO %[2]s; GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA %[1]s TO %[2]s;
GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA %[1]s TO %[2]s`, quoted, role))
	past := func() { admin(t, `UPDATE `+quoted+`.meta SET value = '00000000' WHERE key = 'timeline'`) }
	past()
	db, err := honkerpg.Open(t.Context(), dsn, &honkerpg.Options{Schema: schema, NoMigrate: true})
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	id, err := honker.NewQueue[int](db, "q", nil).Enqueue(t.Context(), 1)
	require.NoError(t, err)
	require.EqualValues(t, 100_001, id)
	past()
	offset, err := honker.NewStream[int](owner, "s", nil).Publish(t.Context(), 1) // the first of its connection
	require.NoError(t, err)
	require.EqualValues(t, 10_100_001, offset)
	again, err := honker.NewStream[int](owner, "s", nil).Publish(t.Context(), 1)
	require.NoError(t, err)
	require.Equal(t, offset+1, again)
}

// A standby serves reads of a DB that is opened for reading, and readers see new events without notices. It warns about
// nothing. For writing it is refused.
func TestOpen_Standby(t *testing.T) {
	if testing.Short() {
		t.Skip("starts two servers")
	}
	p, seen := newPair(t, false), &warnings{}
	db, err := honkerpg.Open(t.Context(), p.primary.DSN(), nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	q, s := honker.NewQueue[int](db, "q", nil), honker.NewStream[int](db, "s", nil)
	_, err = q.Enqueue(t.Context(), 1)
	require.NoError(t, err)
	_, err = s.Publish(t.Context(), 1)
	require.NoError(t, err)
	at := scalar[string](t, p.primary.DSN(), `SELECT pg_current_wal_insert_lsn()::text`)
	require.Eventually(t, func() bool {
		return scalar[bool](t, p.standby.DSN(), `SELECT pg_last_wal_replay_lsn() >= '`+at+`'`)
	}, time.Minute, 5*time.Millisecond)

	_, err = honkerpg.Open(t.Context(), p.standby.DSN(), nil)
	require.ErrorIs(t, err, honker.ErrReadOnly)
	require.ErrorContains(t, err, "the server is a standby; connect to the primary")

	o := honkerpg.Options{Options: honker.Options{ReadOnly: true, Logger: seen.logger(), PollInterval: 50 * time.Millisecond}}
	reader, err := honkerpg.Open(t.Context(), p.standby.DSN(), &o)
	require.NoError(t, err)
	defer func() { require.NoError(t, reader.Close()) }()
	readsAll(t, reader)

	err = honker.NewQueue[int](reader, "q", nil).Work(t.Context(), func(context.Context, *honker.Job[int]) error { return nil }, nil)
	require.ErrorIs(t, err, honker.ErrReadOnly)
	err = reader.Tx(t.Context(), func(context.Context, *sql.Tx) error { return nil })
	require.ErrorIs(t, err, honker.ErrReadOnly)

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	next := 1
	for e, err := range honker.NewStream[int](reader, "s", nil).Tail(ctx, honker.Beginning, nil) {
		require.NoError(t, err)
		require.Equal(t, next, e.Data)
		if next++; next > 3 {
			break
		}
		_, err = s.Publish(t.Context(), next)
		require.NoError(t, err)
	}
	require.Zero(t, seen.count(""), "%s", seen.buf.String())
}

// readsAll reads whatever an operator may look at, also through the dashboard.
func readsAll(t *testing.T, db *honker.DB) {
	t.Helper()
	ctx := t.Context()
	jobs, err := view.ListJobs(ctx, db, view.JobFilter{Queues: []string{"q"}}, nil)
	require.NoError(t, err)
	require.Len(t, jobs.Jobs, 1)
	count, err := view.CountJobs(ctx, db, view.JobFilter{Queues: []string{"q"}}, 10)
	require.NoError(t, err)
	require.EqualValues(t, 1, count.N)
	topics, err := view.Topics(ctx, db)
	require.NoError(t, err)
	require.Len(t, topics, 1)
	_, err = view.Problems(ctx, db)
	require.NoError(t, err)
	_, err = view.Explain(ctx, db, jobs.Jobs[0].ID)
	require.NoError(t, err)
	require.NoError(t, db.Check(ctx))
	h := ui.New(db, &ui.Options{Authorize: func(*http.Request, ui.Access) error { return nil }})
	defer h.Close()
	for _, page := range []string{"/", "/jobs"} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, page, nil))
		require.Equal(t, http.StatusOK, w.Code, "%s: %s", page, w.Body)
	}
}
