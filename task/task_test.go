package task_test

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/testkit"
	"github.com/honker-go/honker/task"
)

func newTask(t testing.TB, name string, args ...any) task.Task {
	t.Helper()
	call, err := task.New(name, args...)
	require.NoError(t, err)
	return call
}

// performed is a job's state after an hour of work in a synctest bubble.
type performed struct {
	left    *honker.JobInfo // nil if the job no longer exists
	result  json.RawMessage // nil if no result was saved
	saved   error
	settled []honker.Outcome
}

func workOn(t *testing.T, tasks task.Handlers, enqueue func(*honker.DB) int64) (p performed) {
	t.Helper()
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, s *testkit.Recorder) {
		q := honker.NewQueue[task.Task](db, "tasks", &honker.QueueOptions{ResultTTL: 2 * time.Hour})
		id := enqueue(db)
		stop := testkit.Work(t, q, tasks.Handle, nil)
		time.Sleep(time.Hour)
		require.NoError(t, stop())
		p.result, p.saved = honker.Result[json.RawMessage](context.Background(), db, id)
		p.settled = s.Outcomes()
		info, err := q.Get(context.Background(), id)
		if !errors.Is(err, honker.ErrNotFound) {
			require.NoError(t, err)
			p.left = info
		}
	})
	return p
}

// foreign enqueues payload without encoding it, as another binding would.
func foreign(t *testing.T, payload string) func(*honker.DB) int64 {
	return func(db *honker.DB) int64 {
		return testkit.QueryInt(t, db.SQL(), `INSERT INTO _honker_live (queue, payload, run_at) VALUES ('tasks', ?, ?) RETURNING id`, payload, time.Now().Unix())
	}
}

func ours(t *testing.T, call task.Task) func(*honker.DB) int64 {
	return func(db *honker.DB) int64 {
		return testkit.Enqueue(t, honker.NewQueue[task.Task](db, "tasks", nil), call, honker.MaxAttempts(3))
	}
}

// A task is encoded the same way as in other bindings.
func TestTask_Envelope_AsHonker(t *testing.T) {
	t.Parallel()
	_, db, q := testkit.NewQueue[task.Task](t, nil)
	full := newTask(t, "app.tasks.mail", 1, "zwei", nil, []int{3}, json.RawMessage(`{"a" : 9007199254740993}`))
	full.Kwargs = map[string]json.RawMessage{"to": json.RawMessage(`"ada"`), "cc": json.RawMessage(`null`)}
	for want, call := range map[string]task.Task{
		`{"__honker_task__":{"task":"app.tasks.mail","args":[1,"zwei",null,[3],{"a":9007199254740993}],"kwargs":{"cc":null,"to":"ada"}}}`: full,
		`{"__honker_task__":{"task":"app.tasks.clean","args":[],"kwargs":{}}}`:                                                            newTask(t, "app.tasks.clean"),
		`{"__honker_task__":{"task":"bare","args":[],"kwargs":{}}}`:                                                                       {Name: "bare"},
		`{"__honker_task__":{"task":"größer","args":[null],"kwargs":{"x":null}}}`: {Name: "größer", Args: []json.RawMessage{nil},
			Kwargs: map[string]json.RawMessage{"x": nil}},
	} {
		id := testkit.Enqueue(t, q, call)
		stored := testkit.GetJob(t, q, id).Payload
		require.Equal(t, want, string(stored))
		if testkit.OnFile() {
			require.EqualValues(t, 1, testkit.QueryInt(t, db.SQL(), testkit.PayloadIsText, id))
		}
		var again task.Task
		require.NoError(t, json.Unmarshal(stored, &again))
		text, err := json.Marshal(again)
		require.NoError(t, err)
		require.Equal(t, want, string(text))
	}
}

// fromPython is formatted the way Python's json.dumps does it.
const fromPython = `{"__honker_task__": {"task": "app.tasks.mail", "args": ["ad\u00e4", 9007199254740993, null], "kwargs": {"retries": 2, "to": {"cc": []}}}}`

// A task written by another binding is decoded.
func TestTask_Foreign(t *testing.T) {
	testkit.FileOnly(t)
	t.Parallel()
	db, b := testkit.OpenWithBinding(t)
	id := b.Enqueue("tasks", fromPython)
	job := testkit.ClaimOne(t, honker.NewQueue[task.Task](db, "tasks", nil))
	require.Equal(t, id, job.ID)
	call := job.Args
	require.Equal(t, "app.tasks.mail", call.Name)
	var to string
	require.NoError(t, call.Arg(0, &to))
	require.Equal(t, "adä", to)
	var n int64
	require.NoError(t, call.Arg(1, &n))
	require.Equal(t, int64(9007199254740993), n)
	null := new(int)
	require.NoError(t, call.Arg(2, &null))
	require.Nil(t, null)
	var retries int
	require.NoError(t, call.Kwarg("retries", &retries))
	require.Equal(t, 2, retries)
	var opts struct{ CC []string }
	require.NoError(t, call.Kwarg("to", &opts))
	require.Empty(t, opts.CC)

	for _, text := range []string{ // bindings may omit empty fields
		`{"__honker_task__": {"task": "x"}}`, `{"__honker_task__": {"task": "x", "args": null, "kwargs": null, "extra": 1}}`,
	} {
		var bare task.Task
		require.NoError(t, json.Unmarshal([]byte(text), &bare))
		require.Equal(t, task.Task{Name: "x"}, bare)
	}
}

// Arg and Kwarg fail for arguments that are missing or have the wrong type.
func TestTask_Arguments_Bad(t *testing.T) {
	t.Parallel()
	call := newTask(t, "mail", "ada")
	call.Kwargs = map[string]json.RawMessage{"n": json.RawMessage(`"two"`)}
	var n int
	for what, err := range map[string]error{
		"argument 1 of 1":  call.Arg(1, &n),
		"argument -1 of 1": call.Arg(-1, &n),
		`argument "x"`:     call.Kwarg("x", &n),
		`argument ""`:      call.Kwarg("", &n),
	} {
		require.ErrorIs(t, err, honker.ErrNotFound, what)
		require.ErrorContains(t, err, `honker: task "mail": `+what)
	}
	for _, err := range []error{call.Arg(0, &n), call.Kwarg("n", &n)} {
		require.ErrorContains(t, err, `honker: task "mail": `)
		require.NotErrorIs(t, err, honker.ErrNotFound)
		var wrong *json.UnmarshalTypeError
		require.ErrorAs(t, err, &wrong)
	}
}

// A task that cannot be encoded is rejected.
func TestTask_Unwritable(t *testing.T) {
	t.Parallel()
	path, db := testkit.OpenShared(t)
	q := honker.NewQueue[task.Task](db, "tasks", nil)
	calls := map[string]testkit.Refusal{
		"without a name": func(ctx context.Context) error { _, err := q.Enqueue(ctx, task.Task{}); return err },
		"broken argument": func(ctx context.Context) error {
			_, err := q.Enqueue(ctx, task.Task{Name: "x", Args: []json.RawMessage{json.RawMessage("{")}})
			return err
		},
	}
	for what, arg := range map[string]any{"channel": make(chan int), "infinity": math.Inf(1), "broken raw": json.RawMessage("{")} {
		calls["argument: "+what] = func(context.Context) error { _, err := task.New("x", 1, arg); return err }
	}
	testkit.RequireRefused(t, path, calls)
	_, err := task.New("x", 1, make(chan int))
	require.ErrorContains(t, err, `honker: new task "x": argument 1: `)
}

// A job whose payload is not a task becomes a dead letter.
func TestTask_RawPayload(t *testing.T) {
	const raw = "raw (non-decorated) payload on a decorated-task queue"
	for _, payload := range []string{
		`"hello"`, `{}`, `null`, `[]`, `17`, `{"task": "add", "args": [], "kwargs": {}}`, `{"__honker_task__": null}`, `{"__honker_task__": "add"}`,
		`{"__honker_task__": {}}`, `{"__honker_task__": {"args": [], "kwargs": {}}}`, `{"__honker_task__": {"task": "", "args": []}}`,
		`{"__honker_task__": {"task": 3, "args": []}}`, `{"__honker_task__": {"task": "add", "args": {}}}`,
	} {
		ran := false
		p := workOn(t, task.Handlers{"add": func(context.Context, task.Task) (any, error) { ran = true; return nil, nil }}, foreign(t, payload))
		require.False(t, ran, payload)
		require.Equal(t, honker.StateDead, p.left.State, payload)
		require.Contains(t, p.left.LastError, raw, payload)
		require.Equal(t, 1, p.left.Attempts, payload)
		require.Equal(t, []honker.Outcome{honker.OutcomeDied}, p.settled)
	}
	p := workOn(t, nil, foreign(t, `no JSON`))
	require.Equal(t, honker.StateDead, p.left.State)
}

// A job with an unknown task name becomes a dead letter, and its error lists the known names.
func TestTask_Unknown(t *testing.T) {
	some := func(context.Context, task.Task) (any, error) { return nil, nil }
	for names, want := range map[string]string{"": `unknown task: "app.tasks.mail"`, "b a c": `unknown task: "app.tasks.mail"; known are: a, b, c`} {
		tasks := task.Handlers{}
		for name := range strings.FieldsSeq(names) {
			tasks[name] = some
		}
		p := workOn(t, tasks, foreign(t, fromPython))
		require.Equal(t, honker.StateDead, p.left.State)
		require.Equal(t, 1, p.left.Attempts)
		require.True(t, strings.HasPrefix(p.left.LastError, want), p.left.LastError)
		require.ErrorIs(t, p.saved, honker.ErrNotFound)
	}
	p := workOn(t, task.Handlers{"app.tasks.mail": nil}, foreign(t, fromPython))
	require.Equal(t, honker.StateDead, p.left.State)
}

// A task's return value is saved as its job's result.
func TestTask_Result(t *testing.T) {
	add := func(_ context.Context, call task.Task) (any, error) {
		var a, b int
		if err := errors.Join(call.Arg(0, &a), call.Kwarg("b", &b)); err != nil {
			return nil, err
		}
		return a + b, nil
	}
	p := workOn(t, task.Handlers{"add": add}, foreign(t, `{"__honker_task__": {"task": "add", "args": [19], "kwargs": {"b": 4}}}`))
	require.NoError(t, p.saved)
	require.JSONEq(t, "23", string(p.result))
	require.Nil(t, p.left)
	require.Equal(t, []honker.Outcome{honker.OutcomeAcked}, p.settled)

	p = workOn(t, task.Handlers{"none": func(context.Context, task.Task) (any, error) { return nil, nil }}, ours(t, newTask(t, "none")))
	require.NoError(t, p.saved, "null is a result: a caller may wait for it")
	require.JSONEq(t, "null", string(p.result))
}

// A failed task is retried, and its error can determine the outcome.
func TestTask_Fails_Outcomes(t *testing.T) {
	runs := 0
	flaky := task.Handlers{"flaky": func(context.Context, task.Task) (any, error) {
		if runs++; runs < 3 {
			return "unfinished", testkit.ErrCause
		}
		return "done", nil
	}}
	p := workOn(t, flaky, ours(t, newTask(t, "flaky")))
	require.Equal(t, 3, runs)
	require.JSONEq(t, `"done"`, string(p.result))
	require.Equal(t, []honker.Outcome{honker.OutcomeRetried, honker.OutcomeRetried, honker.OutcomeAcked}, p.settled)

	p = workOn(t, task.Handlers{"bad": func(context.Context, task.Task) (any, error) { return 1, testkit.ErrCause }}, ours(t, newTask(t, "bad")))
	require.Equal(t, honker.StateDead, p.left.State)
	require.Equal(t, 3, p.left.Attempts)
	require.Equal(t, testkit.ErrCause.Error(), p.left.LastError)
	require.ErrorIs(t, p.saved, honker.ErrNotFound)

	p = workOn(t, task.Handlers{"no": func(context.Context, task.Task) (any, error) { return nil, honker.Reject(testkit.ErrCause) }}, ours(t, newTask(t, "no")))
	require.Equal(t, []honker.Outcome{honker.OutcomeDied}, p.settled)
	p = workOn(t, task.Handlers{"missing": func(_ context.Context, call task.Task) (any, error) { return nil, call.Arg(0, new(int)) }}, ours(t, newTask(t, "missing")))
	require.Equal(t, honker.StateDead, p.left.State)
	require.Contains(t, p.left.LastError, "argument 0 of 0")
}

// A schedule can enqueue a task, which a worker in any language can run.
func TestTask_Schedule(t *testing.T) {
	ticked := 0
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		testkit.Register(t, db, honker.Schedule{Name: "app.tasks.clean", Queue: "tasks", Spec: "@every 10m", Payload: newTask(t, "app.tasks.clean")})
		tasks := task.Handlers{"app.tasks.clean": func(context.Context, task.Task) (any, error) { ticked++; return nil, nil }}
		stop := testkit.Work(t, honker.NewQueue[task.Task](db, "tasks", nil), tasks.Handle, nil)
		leave := testkit.Background(t, db.Scheduler().Run)
		time.Sleep(time.Hour + time.Second)
		require.NoError(t, leave())
		require.NoError(t, stop())
	})
	require.Equal(t, 6, ticked)
}
