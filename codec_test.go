package honker_test

import (
	"context"
	"database/sql"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
)

// wrap is a codec with readable output: {"in": queue, "n": counter, "text": base64}. It rejects payloads from other
// queues and passes through payloads that it didn't encode.
type wrap struct {
	fail atomic.Pointer[error] // returned by Decode
	made atomic.Int64
}

type wrapped struct {
	In   string `json:"in"`
	N    int64  `json:"n"`
	Text []byte `json:"text"`
}

func (c *wrap) Encode(_ context.Context, queue string, payload json.RawMessage) (json.RawMessage, error) {
	return json.Marshal(wrapped{queue, c.made.Add(1), payload})
}

func (c *wrap) Decode(_ context.Context, queue string, stored json.RawMessage) (json.RawMessage, error) {
	if err := c.fail.Load(); err != nil {
		return nil, *err
	}
	var w wrapped
	if err := json.Unmarshal(stored, &w); err != nil || w.In == "" {
		return stored, nil
	}
	if w.In != queue {
		return nil, honker.Reject(fmt.Errorf("wrapped for %q, and it is in %q", w.In, queue))
	}
	return w.Text, nil
}

// lock makes Decode fail with err. A nil err makes it work again.
func (c *wrap) lock(err error) {
	if err == nil {
		c.fail.Store(nil)
		return
	}
	c.fail.Store(&err)
}

var errLocked = errors.New("no key")

// newCodecQueue returns a queue of a DB with a codec.
func newCodecQueue(t *testing.T, opts *honker.QueueOptions) (context.Context, *honker.DB, *honker.Queue[string], *wrap) {
	c := new(wrap)
	db := honkertest.Open(t, &honker.Options{Codec: c})
	return testkit.Context(t, testkit.Timeout), db, honker.NewQueue[string](db, "jobs", opts), c
}

// requireWrapped checks that j's stored payload is the codec's encoding of payload for the queue.
func requireWrapped(t *testing.T, j *honker.JobInfo, payload string) {
	t.Helper()
	var w wrapped
	require.NoError(t, json.Unmarshal(j.Payload, &w), "%s", j.Payload)
	require.Equal(t, j.Queue, w.In)
	require.Equal(t, payload, string(w.Text))
}

// Every write encodes the payload and every claim decodes it. Job listings show the stored form.
func TestCodec_RoundTrip(t *testing.T) {
	t.Parallel()
	ctx, db, q, _ := newCodecQueue(t, nil)
	ids := []int64{testkit.Enqueue(t, q, "one")}
	many, err := q.EnqueueMany(ctx, []string{"two", "three"})
	require.NoError(t, err)
	ids = append(ids, many...)
	require.NoError(t, db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		id, err := q.EnqueueTx(ctx, tx, "four")
		if err != nil {
			return err
		}
		more, err := q.EnqueueManyTx(ctx, tx, []string{"five", "six"})
		ids = append(append(ids, id), more...)
		return err
	}))
	words := []string{"one", "two", "three", "four", "five", "six"}
	for i, id := range ids {
		info := testkit.GetJob(t, q, id)
		requireWrapped(t, info, `"`+words[i]+`"`)
		args, err := honker.Args[string](info)
		require.NoError(t, err)
		require.Equal(t, words[i], args)
		stored, err := db.Job(ctx, id)
		require.NoError(t, err)
		require.Equal(t, info.Payload, stored.Payload)
	}
	job := testkit.Claim(t, q, 1)[0]
	require.Equal(t, "one", job.Args)
	requireWrapped(t, &job.JobInfo, `"one"`)
	require.NoError(t, job.Ack(ctx))
	for job, err := range q.Jobs(ctx, "w") {
		require.NoError(t, err)
		require.Equal(t, "two", job.Args)
		require.NoError(t, job.Ack(ctx))
		break
	}
	var seen []string
	n, err := q.WorkDue(ctx, func(_ context.Context, job *honker.Job[string]) error {
		seen = append(seen, job.Args)
		return nil
	}, nil)
	require.NoError(t, err)
	require.Equal(t, 4, n)
	require.Equal(t, words[2:], seen)
}

// receive waits for the next value that a handler sends.
func receive(t *testing.T, seen <-chan string) string {
	t.Helper()
	select {
	case what := <-seen:
		return what
	case <-time.After(testkit.Timeout):
		t.Fatal("no job came")
		return ""
	}
}

// Jobs handed to an idle worker are decoded, as are jobs from several queues and messages in an outbox.
func TestCodec_Workers(t *testing.T) {
	t.Parallel()
	ctx, db, q, _ := newCodecQueue(t, nil)
	seen := make(chan string, 1)
	handle := func(_ context.Context, job *honker.Job[string]) error { seen <- job.Queue + " " + job.Args; return nil }
	stop := testkit.Work(t, q, handle, nil)
	for i := range 10 {
		word := fmt.Sprint("word ", i)
		testkit.Enqueue(t, q, word)
		require.Equal(t, "jobs "+word, receive(t, seen))
	}
	require.NoError(t, stop())

	w := testkit.Workers(db, nil, []string{"a", "b"}, handle)
	stop = testkit.Background(t, func(ctx context.Context) error { return w.Work(ctx, nil) })
	for _, name := range []string{"a", "b"} {
		testkit.Enqueue(t, honker.NewQueue[string](db, name, nil), "beside others")
		require.Equal(t, name+" beside others", receive(t, seen))
	}
	require.NoError(t, stop())

	o := honker.NewOutbox(db, "mails", func(_ context.Context, v string) error { seen <- v; return nil }, nil)
	id, err := o.Send(ctx, "to anna")
	require.NoError(t, err)
	requireWrapped(t, testkit.GetJob(t, o.Queue(), id), `"to anna"`)
	stop = testkit.Background(t, func(ctx context.Context) error { return o.Run(ctx, nil) })
	require.Equal(t, "to anna", receive(t, seen))
	require.NoError(t, stop())
}

// A schedule's payload is encoded for its queue, as are the jobs that it enqueues.
func TestCodec_Schedule(t *testing.T) {
	testkit.FileOnly(t)
	t.Parallel()
	ctx, db, q, _ := newCodecQueue(t, nil)
	s := db.Scheduler()
	require.NoError(t, s.Register(ctx, honker.Schedule{Name: "nightly", Queue: "jobs", Spec: "@daily", Payload: "report"}))
	schedules, err := s.List(ctx)
	require.NoError(t, err)
	require.NotContains(t, string(schedules[0].Payload), "report")
	_, err = s.Trigger(ctx, "nightly")
	require.NoError(t, err)
	require.Equal(t, "report", testkit.ClaimOne(t, q).Args)
	fires, err := s.Tick(ctx, schedules[0].NextFireAt)
	require.NoError(t, err)
	require.Len(t, fires, 1)
	testkit.Exec(t, db, `UPDATE _honker_live SET run_at = 0`)
	require.Equal(t, "report", testkit.ClaimOne(t, q).Args)

	changed, err := s.Update(ctx, "nightly", honker.ScheduleChange{Payload: new(any("other"))})
	require.NoError(t, err)
	require.True(t, changed)
	schedules, err = s.List(ctx)
	require.NoError(t, err)
	require.NotContains(t, string(schedules[0].Payload), "other")
	_, err = s.Trigger(ctx, "nightly")
	require.NoError(t, err)
	require.Equal(t, "other", testkit.ClaimOne(t, q).Args)
}

// A unique key is computed from the unencoded arguments. It is the same without a codec and with a codec whose output
// is different each time.
func TestCodec_UniqueArgs(t *testing.T) {
	t.Parallel()
	ctx, _, q, c := newCodecQueue(t, nil)
	var p honker.Placement
	id := testkit.Enqueue(t, q, "same", honker.UniqueArgs(nil))
	require.Equal(t, id, testkit.Enqueue(t, q, "same", honker.UniqueArgs(nil), honker.Placed(&p)))
	require.Equal(t, honker.PlacedExisting, p.Result)
	args, err := honker.Args[string](&p.Of)
	require.NoError(t, err)
	require.Equal(t, "same", args)

	_, _, plain := testkit.NewQueue[string](t, nil)
	of := testkit.GetJob(t, plain, testkit.Enqueue(t, plain, "same", honker.UniqueArgs(nil))).Unique
	require.Equal(t, of, testkit.GetJob(t, q, id).Unique)

	replace := honker.UniqueArgs(&honker.Uniqueness{Conflict: honker.ReplaceWaiting})
	made := c.made.Load()
	require.Equal(t, id, testkit.Enqueue(t, q, "same", replace))
	require.Equal(t, made+1, c.made.Load())
	job := testkit.ClaimOne(t, q)
	require.Equal(t, "same", job.Args)
	require.NoError(t, job.Ack(ctx))
}

// codecFunc is a codec whose Encode calls the function.
type codecFunc func(payload json.RawMessage) (json.RawMessage, error)

func (f codecFunc) Encode(_ context.Context, _ string, payload json.RawMessage) (json.RawMessage, error) {
	return f(payload)
}

func (codecFunc) Decode(_ context.Context, _ string, stored json.RawMessage) (json.RawMessage, error) {
	return stored, nil
}

// A payload that the codec cannot encode is not written.
func TestCodec_EncodeFails(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	for text, c := range map[string]codecFunc{
		`honker: enqueue "jobs": codec: no key`: func(json.RawMessage) (json.RawMessage, error) { return nil, errLocked },
		"is not JSON text":                      func(json.RawMessage) (json.RawMessage, error) { return json.RawMessage("\x00"), nil },
		"the maximum is 100 (Options.MaxPayload)": func(json.RawMessage) (json.RawMessage, error) {
			return json.RawMessage(`"` + strings.Repeat("x", 99) + `"`), nil
		},
	} {
		db := honkertest.Open(t, &honker.Options{Codec: c, MaxPayload: 100})
		q := honker.NewQueue[string](db, "jobs", nil)
		_, err := q.EnqueueMany(ctx, []string{"a", "b"})
		require.ErrorContains(t, err, text)
		err = db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			_, err := q.EnqueueTx(ctx, tx, "a")
			require.ErrorContains(t, err, text)
			return nil
		})
		require.NoError(t, err)
		require.ErrorContains(t, db.Scheduler().Register(ctx, honker.Schedule{Name: "s", Queue: "jobs", Spec: "@daily"}), strings.TrimPrefix(text, `honker: enqueue "jobs": `))
		require.Zero(t, liveJobs(t, q))
	}
	var none context.Context
	_, err := honker.NewQueue[string](honkertest.Open(t, &honker.Options{Codec: new(wrap)}), "jobs", nil).Enqueue(none, "x")
	require.ErrorIs(t, err, honker.ErrInvalid)
}

// Claim, Jobs and Work retry a job that the codec cannot decode for now. A job that can never be decoded is
// dead-lettered, as is a job whose text doesn't unmarshal into T.
func TestCodec_DecodeFails(t *testing.T) {
	t.Parallel()
	ways := map[string]func(context.Context, *honker.Queue[string]) error{
		"Claim": func(ctx context.Context, q *honker.Queue[string]) error {
			jobs, err := q.Claim(ctx, "w", 9)
			require.Empty(t, jobs)
			return err
		},
		"Jobs": func(ctx context.Context, q *honker.Queue[string]) error {
			for job, err := range q.Jobs(ctx, "w") {
				require.Empty(t, job.Args)
				require.ErrorContains(t, err, "honker: decode job")
				return nil
			}
			return nil
		},
		"Work": func(ctx context.Context, q *honker.Queue[string]) error {
			_, err := q.WorkDue(ctx, func(context.Context, *honker.Job[string]) error {
				t.Error("the handler was called")
				return nil
			}, nil)
			return err
		},
	}
	for name, take := range ways {
		for _, c := range []struct {
			cause error
			state honker.State
			delay time.Duration
			spent int
		}{
			{errLocked, honker.StatePending, time.Hour, 1},
			{honker.RetryAfter(time.Minute, errLocked), honker.StatePending, time.Minute, 1},
			{honker.Snooze(2 * time.Minute), honker.StatePending, 2 * time.Minute, 0},
			{honker.Reject(errLocked), honker.StateDead, 0, 1},
		} {
			ctx, _, q, codec := newCodecQueue(t, &honker.QueueOptions{Backoff: honker.Constant(time.Hour)})
			id := testkit.Enqueue(t, q, "secret")
			codec.lock(c.cause)
			require.NoError(t, take(ctx, q), name)
			info := testkit.GetJob(t, q, id)
			require.Equal(t, c.state, info.State, name)
			require.Equal(t, c.spent, info.Attempts, name)
			require.InDelta(t, c.delay.Seconds(), info.RunAt.Sub(info.CreatedAt).Seconds(), 30, name)
			if c.spent > 0 {
				require.Equal(t, "codec: no key", info.LastError, name)
			}
			_, err := honker.Args[string](info)
			require.ErrorIs(t, err, c.cause)
			requireWrapped(t, info, `"secret"`)
		}
		ctx, db, q, _ := newCodecQueue(t, nil)
		id := testkit.Enqueue(t, honker.NewQueue[int](db, "jobs", nil), 5)
		require.NoError(t, take(ctx, q), name)
		require.Equal(t, honker.StateDead, testkit.GetJob(t, q, id).State, name)
	}
}

// A job whose decryption key is missing is not lost. It is retried and then dead-lettered with all of its
// data.
func TestCodec_KeyComesBack(t *testing.T) {
	t.Parallel()
	ctx, _, q, c := newCodecQueue(t, &honker.QueueOptions{MaxAttempts: 3, Backoff: honker.Constant(0)})
	id := testkit.Enqueue(t, q, "secret")
	c.lock(errLocked)
	_, err := q.WorkDue(ctx, func(context.Context, *honker.Job[string]) error { return nil }, nil)
	require.NoError(t, err)
	info := testkit.GetJob(t, q, id)
	require.Equal(t, honker.StateDead, info.State)
	require.Equal(t, 3, info.Attempts)
	requireWrapped(t, info, `"secret"`)
	c.lock(nil)
	args, err := honker.Args[string](info)
	require.NoError(t, err)
	require.Equal(t, "secret", args)
}

// Decode receives foreign payloads unchanged and may pass them through. Payloads that are not text are
// rejected.
func TestCodec_Foreign(t *testing.T) {
	testkit.FileOnly(t)
	t.Parallel()
	ctx, db, q, _ := newCodecQueue(t, nil)
	testkit.Exec(t, db, `SELECT honker_enqueue('jobs', '"clear"', NULL, NULL, 0, 3, NULL)`)
	require.Equal(t, "clear", testkit.ClaimOne(t, q).Args)
	testkit.Exec(t, db, `INSERT INTO _honker_live (queue, payload) VALUES ('jobs', X'2261')`)
	jobs, err := q.Claim(ctx, "w", 1)
	require.NoError(t, err)
	require.Empty(t, jobs)
	require.EqualValues(t, 1, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_dead WHERE last_error LIKE '%not as text'`))
}

// Middleware is called for an attempt whose payload doesn't decode, and receives the error.
func TestCodec_Middleware(t *testing.T) {
	t.Parallel()
	ctx, _, q, c := newCodecQueue(t, nil)
	testkit.Enqueue(t, q, "secret")
	c.lock(errLocked)
	var seen []error
	watch := func(next honker.WorkFunc) honker.WorkFunc {
		return func(ctx context.Context, job *honker.JobInfo) error {
			err := next(ctx, job)
			seen = append(seen, err)
			return err
		}
	}
	_, err := q.WorkDue(ctx, func(context.Context, *honker.Job[string]) error { return nil }, &honker.WorkOptions{Middleware: []honker.Middleware{watch}})
	require.NoError(t, err)
	require.Len(t, seen, 1)
	require.ErrorIs(t, seen[0], errLocked)
}

// An encoded payload's plaintext is neither in the file nor in its log, even after a retry or a death, with a unique
// key, or for a schedule.
func TestCodec_NotInFile(t *testing.T) {
	testkit.FileOnly(t)
	t.Parallel()
	path := filepath.Join(t.TempDir(), "sealed.db")
	db := honkertest.OpenFile(t, path, &honker.Options{Codec: new(wrap)})
	q := honker.NewQueue[string](db, "jobs", &honker.QueueOptions{MaxAttempts: 2, Backoff: honker.Constant(0)})
	testkit.Enqueue(t, q, "very secret", honker.UniqueArgs(nil), honker.Key("k"))
	testkit.Register(t, db, honker.Schedule{Name: "s", Queue: "jobs", Spec: "@daily", Payload: "very secret"})
	_, err := q.WorkDue(t.Context(), func(context.Context, *honker.Job[string]) error { return testkit.ErrCause }, nil)
	require.NoError(t, err)
	var bytes []byte
	for _, name := range []string{path, path + "-wal"} {
		part, err := os.ReadFile(name)
		require.NoError(t, err)
		bytes = append(bytes, part...)
	}
	require.Contains(t, string(bytes), base64.StdEncoding.EncodeToString([]byte(`"very secret"`)))
	require.NotContains(t, string(bytes), "very secret")
}
