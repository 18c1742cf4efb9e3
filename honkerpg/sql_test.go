//go:build unix

package honkerpg_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkerpg"
	"github.com/honker-go/honker/honkerpg/internal/pgtest"
)

// foreign is a program that uses the database without the library.
type foreign struct {
	t      *testing.T
	pool   *pgxpool.Pool
	schema string
}

// newForeign opens a DB in a new schema, and returns it beside a program that has only SQL.
func newForeign(t *testing.T) (*honker.DB, *foreign) {
	t.Helper()
	schema := pgtest.Schema(t)
	return open(t, honkerpg.Options{Schema: schema}), &foreign{t, newPool(t), schema}
}

// text returns a statement for the schema of the test.
func (f *foreign) text(query string) string {
	return strings.ReplaceAll(query, "honker.", pgx.Identifier{f.schema}.Sanitize()+".")
}

// exec runs statements that may have no arguments.
func (f *foreign) exec(statements string, args ...any) {
	f.t.Helper()
	_, err := f.pool.Exec(context.Background(), f.text(statements), args...)
	require.NoError(f.t, err)
}

// ask returns the value of a query.
func ask[V any](f *foreign, query string, args ...any) (v V) {
	f.t.Helper()
	require.NoError(f.t, f.pool.QueryRow(context.Background(), f.text(query), args...).Scan(&v))
	return v
}

// isAwaited reports whether another transaction waits for tx.
func (f *foreign) isAwaited(tx pgx.Tx) bool {
	return ask[bool](f, `SELECT EXISTS (SELECT FROM pg_stat_activity a WHERE $1 = ANY (pg_blocking_pids(a.pid)))`, tx.Conn().PgConn().PID())
}

type parcel struct {
	To string `json:"to"`
}

// A job that SQL has enqueued with every option is the job that Go would have enqueued.
func TestSQL_Enqueue(t *testing.T) {
	db, f := newForeign(t)
	q := honker.NewQueue[parcel](db, "parcels", nil)
	first := ask[int64](f, `SELECT honker.enqueue('parcels', '{"to": "ann"}')`)
	soon := time.Now().Add(time.Hour).Truncate(time.Second)
	id := ask[int64](f, `SELECT honker.enqueue('parcels', '{"to": "bob"}', priority => -7, run_at => $1, expires => '2 hours',
		max_attempts => 3, unique_key => 'u', key => 'k', headers => '{"tenant": "<7>"}', after => ARRAY[$2::bigint])`, soon, first)
	got, err := q.Get(t.Context(), id)
	require.NoError(t, err)
	require.JSONEq(t, `{"to": "bob"}`, string(got.Payload))
	require.Equal(t, -7, got.Priority)
	require.Equal(t, soon, got.RunAt.Truncate(time.Second))
	require.WithinDuration(t, time.Now().Add(2*time.Hour), got.ExpiresAt, time.Minute)
	require.Equal(t, 3, got.MaxAttempts)
	require.Equal(t, "u", got.Unique)
	require.Equal(t, "k", got.Key)
	require.Equal(t, map[string]string{"tenant": "<7>"}, got.Headers)
	require.Equal(t, honker.PhaseHeld, got.Phase)

	plain, err := q.Get(t.Context(), first)
	require.NoError(t, err)
	require.Equal(t, 25, plain.MaxAttempts)
	require.Equal(t, honker.PhaseReady, plain.Phase)

	// The key is taken, in both directions.
	require.Equal(t, id, ask[int64](f, `SELECT honker.enqueue('parcels', '{}', unique_key => 'u')`))
	same, err := q.Enqueue(t.Context(), parcel{"cleo"}, honker.Unique("u", nil))
	require.NoError(t, err)
	require.Equal(t, id, same)

	later := ask[int64](f, `SELECT honker.enqueue('parcels', '{}', delay => '1 hour')`)
	got, err = q.Get(t.Context(), later)
	require.NoError(t, err)
	require.Equal(t, honker.PhaseScheduled, got.Phase)
	require.False(t, got.RunAt.Before(got.CreatedAt.Add(time.Hour)))
	require.True(t, ask[bool](f, `SELECT honker.cancel($1)`, later))
	_, err = q.Get(t.Context(), later)
	require.ErrorIs(t, err, honker.ErrNotFound)
}

// A trigger of the application enqueues a job for each row of a statement, in the statement's transaction.
func TestSQL_Enqueue_InATrigger(t *testing.T) {
	db, f := newForeign(t)
	f.exec(`CREATE TABLE honker.orders (id bigint PRIMARY KEY);
		CREATE FUNCTION honker.order_stored() RETURNS trigger LANGUAGE plpgsql AS $$
			BEGIN PERFORM honker.enqueue('receipts', to_jsonb(NEW.id)); RETURN NULL; END $$;
		CREATE TRIGGER order_stored AFTER INSERT ON honker.orders FOR EACH ROW EXECUTE FUNCTION honker.order_stored()`)
	tx, err := f.pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), f.text(`INSERT INTO honker.orders VALUES (1), (2)`))
	require.NoError(t, err)
	require.NoError(t, tx.Rollback(t.Context()))
	f.exec(`INSERT INTO honker.orders VALUES (3), (4)`)
	var got []int
	n, err := honker.NewQueue[int](db, "receipts", nil).WorkDue(t.Context(), func(_ context.Context, job *honker.Job[int]) error {
		got = append(got, job.Args)
		return nil
	}, &honker.WorkOptions{Workers: 1})
	require.NoError(t, err)
	require.Equal(t, 2, n)
	require.Equal(t, []int{3, 4}, got)
}

// A waiting worker starts a job of SQL at once, and a job in another queue that waits for it as soon as SQL has acked it.
func TestSQL_Wakes(t *testing.T) {
	db, f := newForeign(t)
	started := starts(t, db) // of the queue a
	ask[int64](f, `SELECT honker.enqueue('a', '0')`)
	<-started
	var longest time.Duration
	for range 6 {
		id := ask[int64](f, `SELECT honker.enqueue('b', '1')`)
		ask[int64](f, `SELECT honker.enqueue('a', '2', after => ARRAY[$1::bigint])`, id)
		require.Eventually(t, func() bool { // the resolver may have locked the job for a moment
			return ask[int](f, `SELECT count(*) FROM honker.claim('b', 'sql')`) == 1
		}, time.Minute, time.Millisecond)
		require.True(t, ask[bool](f, `SELECT honker.ack($1, 'sql', 1)`, id))
		acked := time.Now()
		longest += (<-started).Sub(acked)
	}
	require.Less(t, longest/6, 2*time.Second, "looks of each few seconds would be slower")
}

// SQL settles jobs that Go has enqueued: Go finds results, errors, attempts and kept jobs as if it had settled them.
func TestSQL_Claim(t *testing.T) {
	db, f := newForeign(t)
	q := honker.NewQueue[parcel](db, "parcels", &honker.QueueOptions{MaxAttempts: 2})
	require.NoError(t, q.SetRetention(t.Context(), honker.QueueRetention{Done: honker.Retention{MaxCount: 10}}))
	enqueue := func(opts ...honker.EnqueueOption) int64 {
		id, err := q.Enqueue(t.Context(), parcel{"ann"}, opts...)
		require.NoError(t, err)
		return id
	}
	id := enqueue(honker.Headers(map[string]string{"tenant": "7"}), honker.Key("k"), honker.Priority(3))
	type claimed struct {
		ID                     int64
		To, Tenant, Key, Error string
		Attempts, Max          int
		Left                   time.Duration
	}
	claim := func() (c claimed) {
		require.NoError(t, f.pool.QueryRow(t.Context(), f.text(`SELECT id, payload->>'to', coalesce(headers->>'tenant', ''), coalesce(key, ''),
			coalesce(last_error, ''), attempts, max_attempts, claim_expires_at - clock_timestamp() FROM honker.claim('parcels', 'sql', lease => '10 minutes')`)).
			Scan(&c.ID, &c.To, &c.Tenant, &c.Key, &c.Error, &c.Attempts, &c.Max, &c.Left))
		return c
	}
	c := claim()
	require.Greater(t, c.Left, 5*time.Minute)
	c.Left = 0
	require.Equal(t, claimed{ID: id, To: "ann", Tenant: "7", Key: "k", Attempts: 1, Max: 2}, c)
	require.True(t, ask[bool](f, `SELECT honker.extend($1, 'sql', 1, '1 hour')`, id))
	require.False(t, ask[bool](f, `SELECT honker.extend($1, 'sql', 2, '1 hour')`, id))
	got, err := q.Get(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, honker.PhaseRunning, got.Phase)
	require.Greater(t, time.Until(got.ClaimExpiresAt), 50*time.Minute)

	require.True(t, ask[bool](f, `SELECT honker.retry($1, 'sql', 1, '0', 'no paper')`, id))
	c = claim()
	require.Equal(t, "no paper", c.Error)
	require.Equal(t, 2, c.Attempts)
	result := make(chan string, 1)
	failed := make(chan error, 1)
	go func() {
		r, err := honker.WaitResult[string](t.Context(), db, id)
		result <- r
		failed <- err
	}()
	require.False(t, ask[bool](f, `SELECT honker.ack($1, 'sql', 1)`, id), "the first attempt has ended")
	require.False(t, ask[bool](f, `SELECT honker.ack($1, 'other', 2)`, id))
	require.True(t, ask[bool](f, `SELECT honker.ack($1, 'sql', 2, '"printed"', '1 hour')`, id))
	require.Equal(t, "printed", <-result)
	require.NoError(t, <-failed)
	got, err = q.Get(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, honker.StateDone, got.State)
	require.Equal(t, `"printed"`, ask[string](f, `SELECT honker.result($1)::text`, id))

	// A job without attempts left dies, and so does a failed one.
	spent := enqueue(honker.MaxAttempts(1))
	require.Equal(t, spent, claim().ID)
	require.True(t, ask[bool](f, `SELECT honker.retry($1, 'sql', 1, '0', 'jam')`, spent))
	bad := enqueue()
	require.Equal(t, bad, claim().ID)
	require.True(t, ask[bool](f, `SELECT honker.fail($1, 'sql', 1, 'no such address')`, bad))
	for id, cause := range map[int64]string{spent: "jam", bad: "no such address"} {
		_, err = honker.WaitResult[string](t.Context(), db, id)
		var dead *honker.JobFailedError
		require.ErrorAs(t, err, &dead)
		require.Equal(t, cause, dead.LastError)
		require.Equal(t, 1, dead.Attempts)
	}
	require.Zero(t, ask[int](f, `SELECT count(*) FROM honker.claim('parcels', 'sql', 10)`))
	require.Equal(t, 2, ask[int](f, `SELECT dead FROM honker.counts('parcels')`))
	// Whatever a claim leaves for later is gone, as the queue has no limits.
	f.exec(`SELECT honker.catch_up()`)
	require.LessOrEqual(t, ask[int](f, `SELECT count(*) FROM honker.token`), 1)
}

// Payloads that are no jsonb do not stop a claim: those of a Codec, and text with the escape of a zero byte.
func TestSQL_Claim_OtherPayloads(t *testing.T) {
	db, f := newForeign(t)
	for _, text := range []string{`"a\u0000b"`, `"ok"`} {
		_, err := honker.NewQueue[json.RawMessage](db, "a", nil).Enqueue(t.Context(), json.RawMessage(text))
		require.NoError(t, err)
	}
	f.exec(`UPDATE honker.job SET payload = 'sealed' WHERE payload = '"ok"'`)
	require.Equal(t, []string{`"a\u0000b"`, `sealed`}, ask[[]string](f, `SELECT array_agg(payload #>> '{}' ORDER BY id) FROM honker.claim('a', 'sql', 10)`))
}

// Claims of SQL respect pauses and limits, and pauses of SQL those of Go.
func TestSQL_Claim_LimitsAndPauses(t *testing.T) {
	db, f := newForeign(t)
	q := honker.NewQueue[int](db, "a", nil)
	require.NoError(t, q.SetLimits(t.Context(), honker.Limits{PerKey: 1}))
	ids := ask[[]int64](f, `SELECT array_agg(i) FROM honker.enqueue_many('a', '{1,2,3}', key => 'k') i`)
	claim := func() int { return ask[int](f, `SELECT count(*) FROM honker.claim('a', 'sql', 10)`) }
	require.Equal(t, 1, claim())
	require.Zero(t, claim())
	require.True(t, ask[bool](f, `SELECT honker.ack($1, 'sql', 1)`, ids[0]))
	require.True(t, ask[bool](f, `SELECT honker.pause('a', reason => 'deploy', who => 'ann')`))
	paused, err := q.Stats(t.Context())
	require.NoError(t, err)
	require.Equal(t, "deploy", paused.Pause.Reason)
	require.Equal(t, "ann", paused.Pause.By)
	require.False(t, ask[bool](f, `SELECT honker.pause('a')`))
	require.Zero(t, claim())
	resumed, err := q.Resume(t.Context())
	require.NoError(t, err)
	require.True(t, resumed)
	require.False(t, ask[bool](f, `SELECT honker.resume('a')`))
	require.True(t, ask[bool](f, `SELECT honker.pause('a', key => 'k')`))
	require.Zero(t, claim())
	require.True(t, ask[bool](f, `SELECT honker.resume('a', 'k')`))
	require.Equal(t, 1, claim())
}

// Events and messages of SQL reach Go in the order of their offsets, and SQL reads those of Go.
func TestSQL_Publish(t *testing.T) {
	db, f := newForeign(t)
	s := honker.NewStream[int](db, "numbers", nil)
	l, err := db.Listen(t.Context(), "news")
	require.NoError(t, err)
	defer l.Close()
	go func() {
		for n := range 50 {
			_, err := f.pool.Exec(t.Context(), f.text(`SELECT honker.publish('numbers', to_jsonb($1::int), $2), honker.publish('others', '0')`), n, fmt.Sprint("k", n))
			if err != nil {
				t.Error(err)
			}
		}
		if _, err := f.pool.Exec(t.Context(), f.text(`SELECT honker.notify('news', '"over"')`)); err != nil {
			t.Error(err)
		}
	}()
	var last int64
	n := 0
	for e, err := range s.Subscribe(t.Context(), "reader", nil) {
		require.NoError(t, err)
		require.Equal(t, n, e.Data)
		require.Equal(t, fmt.Sprint("k", n), e.Key)
		require.Greater(t, e.Offset, last)
		last = e.Offset
		if n++; n == 50 {
			break
		}
	}
	message, err := l.Next(t.Context())
	require.NoError(t, err)
	require.JSONEq(t, `"over"`, string(message.Payload))

	offset, err := s.Publish(t.Context(), 50, honker.EventKey("go"))
	require.NoError(t, err)
	require.Equal(t, offset, ask[int64](f, `SELECT "offset" FROM honker.read('numbers', $1) WHERE key = 'go' AND payload = '50'`, last))
	require.Equal(t, 10, ask[int](f, `SELECT count(*) FROM honker.read('numbers', 0, 10)`))
}

// A lock and a rate limit are the same for SQL and Go, and an unlock of SQL wakes a waiter.
func TestSQL_LocksAndRates(t *testing.T) {
	db, f := newForeign(t)
	first := ask[int64](f, `SELECT honker.lock('l', 'sql')`)
	_, err := db.TryLock(t.Context(), "l", nil)
	require.ErrorIs(t, err, honker.ErrLockHeld)
	require.True(t, ask[bool](f, `SELECT honker.lock('l', 'sql') IS NULL`))
	require.True(t, ask[bool](f, `SELECT honker.renew('l', 'sql', '1 hour')`))
	got := make(chan *honker.Lock, 1)
	go func() {
		l, err := db.Lock(t.Context(), "l", nil)
		if err != nil {
			t.Error(err)
		}
		got <- l
	}()
	require.True(t, ask[bool](f, `SELECT honker.unlock('l', 'sql')`))
	l := <-got
	require.NotNil(t, l)
	require.Greater(t, l.Token(), first)
	require.True(t, ask[bool](f, `SELECT honker.lock('l', 'sql') IS NULL`))
	require.False(t, ask[bool](f, `SELECT honker.unlock('l', 'sql')`))
	require.NoError(t, l.Unlock(t.Context()))

	r := db.RateLimit("r", 2, 240*time.Hour)
	ok, err := r.Allow(t.Context())
	require.NoError(t, err)
	require.True(t, ok)
	require.True(t, ask[bool](f, `SELECT honker.rate('r', 2, '240 hours')`))
	require.False(t, ask[bool](f, `SELECT honker.rate('r', 2, '240 hours')`))
	ok, err = r.Allow(t.Context())
	require.NoError(t, err)
	require.False(t, ok)
}

// Bad arguments are refused with the code and the sentence that the page promises.
func TestSQL_Refused(t *testing.T) {
	_, f := newForeign(t)
	for call, want := range map[string]string{
		`enqueue(NULL, '1')`:                                                       "the queue name is NULL",
		`enqueue('', '1')`:                                                         "the queue name is empty",
		`enqueue(repeat('q', 1025), '1')`:                                          "the queue name has 1025 bytes",
		`enqueue('a', NULL)`:                                                       "the payload is NULL",
		`enqueue('a', '1', delay => '-1 s')`:                                       "negative",
		`enqueue('a', '1', expires => '0')`:                                        "not positive",
		`enqueue('a', '1', delay => '1 s', run_at => '2100-01-01')`:                "cannot be combined",
		`enqueue('a', '1', run_at => 'infinity')`:                                  "infinity",
		`enqueue('a', '1', max_attempts => 0)`:                                     "must be positive",
		`enqueue('a', '1', priority => NULL)`:                                      "NULL",
		`enqueue('a', '1', key => '')`:                                             "the key is empty",
		`enqueue('a', '1', unique_key => repeat('é', 513))`:                        "the unique key has 1026 bytes",
		`enqueue('a', '1', headers => '[]')`:                                       "no JSON object",
		`enqueue('a', '1', headers => '{"a": 1}')`:                                 "a string as its value",
		`enqueue('a', '1', headers => '{"": "1"}')`:                                "must have a name",
		`enqueue('a', '1', headers => jsonb_build_object('a', repeat('x', 8192)))`: "the maximum is 64 headers",
		`enqueue('a', '1', after => '{99}')`:                                       "no job with id 99 has ever existed",
		`enqueue('a', '1', after => '{NULL}')`:                                     "no NULL",
		`enqueue_many('a', NULL)`:                                                  "array of payloads is NULL",
		`enqueue_many('a', '{1,NULL}')`:                                            "the payload is NULL",
		`claim('a', '')`:                                                           "the worker is empty",
		`claim('a', 'w', 0)`:                                                       "must be positive",
		`claim('a', 'w', 1, '0')`:                                                  "not positive",
		`ack(NULL, 'w', 1)`:                                                        "NULL",
		`ack(1, 'w', 1, '1', '-1 s')`:                                              "negative",
		`retry(1, 'w', 1, NULL)`:                                                   "the delay is NULL",
		`fail(1, NULL, 1)`:                                                         "the worker is NULL",
		`extend(1, 'w', 1, '0')`:                                                   "not positive",
		`publish('a*', '1')`:                                                       "pattern",
		`publish('a', NULL)`:                                                       "the payload is NULL",
		`publish('a', '1', repeat('k', 1025))`:                                     "the event key has 1025 bytes",
		`read('a', 0, 0)`:                                                          "not positive",
		`notify('_honker:job:1', '1')`:                                             "reserved",
		`lock('', 'me')`:                                                           "the lock name is empty",
		`lock('a', 'me', '-1 s')`:                                                  "negative",
		`renew('a', '')`:                                                           "the lock owner is empty",
		`unlock('a', NULL)`:                                                        "the lock owner is NULL",
		`rate('a', 0, '1 s')`:                                                      "must be positive",
		`rate('a', 1, '0')`:                                                        "not positive",
		`pause('a', '2000-01-01')`:                                                 "already passed",
		`pause('a', 'infinity')`:                                                   "after the year 9999",
		`pause('a', reason => repeat('x', 1025))`:                                  "more than 1024 bytes",
		`resume('a', '')`:                                                          "the key is empty",
		`counts('a', 0)`:                                                           "must be positive",
	} {
		_, err := f.pool.Exec(t.Context(), f.text(`SELECT * FROM honker.`+call))
		var refused *pgconn.PgError
		require.True(t, errors.As(err, &refused), call)
		require.Equal(t, "22023", refused.Code, "%s: %v", call, err)
		require.Contains(t, refused.Message, want, call)
	}
	require.Zero(t, ask[int](f, `SELECT count(*) FROM honker.job`))

	// A job that a trigger of the application drops is an error.
	f.exec(`CREATE FUNCTION honker.dropped() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
		CREATE TRIGGER dropped BEFORE INSERT ON honker.job FOR EACH ROW EXECUTE FUNCTION honker.dropped()`)
	for _, call := range []string{`enqueue('a', '1')`, `enqueue('a', '1', unique_key => 'u')`, `enqueue_many('a', '{1,2}')`} {
		_, err := f.pool.Exec(t.Context(), f.text(`SELECT honker.`+call))
		var dropped *pgconn.PgError
		require.True(t, errors.As(err, &dropped), call)
		require.Equal(t, "HK001", dropped.Code, call)
	}

	// Claims must see the commits of others.
	tx, err := f.pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), f.text(`SELECT honker.claim('a', 'w')`))
	require.ErrorContains(t, err, "READ COMMITTED")
	require.NoError(t, tx.Rollback(t.Context()))
}
