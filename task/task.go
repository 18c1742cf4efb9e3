// Package task exchanges tasks with the honker bindings for Python and the JVM. A task is a call to
// a named function. Jobs enqueued in a honker.Queue[task.Task] can be run by workers in those
// languages, and [Handlers] runs tasks that those bindings have enqueued.
package task

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
)

// Task is a call to a named function.
type Task struct {
	Name   string // function name; "module.function" in Python
	Args   []json.RawMessage
	Kwargs map[string]json.RawMessage
}

// New returns a call to the named function with args as its positional arguments, encoded as JSON.
// Set Kwargs for keyword arguments. New fails if an argument cannot be encoded.
func New(name string, args ...any) (Task, error) {
	t := Task{Name: name}
	for i, a := range args {
		text, err := engine.Marshal(a)
		if err != nil {
			return Task{}, engine.Wrap("new task", name, fmt.Errorf("argument %d: %w", i, err))
		}
		t.Args = append(t.Args, json.RawMessage(text))
	}
	return t, nil
}

// Arg decodes the positional argument with index i, from 0, into v. It returns
// [honker.ErrNotFound] if there is no such argument.
func (t Task) Arg(i int, v any) error {
	if i < 0 || i >= len(t.Args) {
		return engine.Wrap("task", t.Name, fmt.Errorf("argument %d of %d: %w", i, len(t.Args), honker.ErrNotFound))
	}
	return t.read(t.Args[i], v)
}

// Kwarg decodes the keyword argument name into v. It returns [honker.ErrNotFound] if there is no
// such argument.
func (t Task) Kwarg(name string, v any) error {
	text, ok := t.Kwargs[name]
	if !ok {
		return engine.Wrap("task", t.Name, fmt.Errorf("argument %q: %w", name, honker.ErrNotFound))
	}
	return t.read(text, v)
}

func (t Task) read(text json.RawMessage, v any) error {
	return engine.Wrap("task", t.Name, json.Unmarshal(text, v))
}

// envelope is the JSON object that marks a payload as a task.
type envelope struct {
	Task *call `json:"__honker_task__"`
}

type call struct {
	Task   string                     `json:"task"`
	Args   []json.RawMessage          `json:"args"`
	Kwargs map[string]json.RawMessage `json:"kwargs"`
}

// MarshalJSON implements [json.Marshaler]. It returns [honker.ErrInvalid] if Name is empty.
func (t Task) MarshalJSON() ([]byte, error) {
	if t.Name == "" {
		return nil, fmt.Errorf("%w: the task has no name", honker.ErrInvalid)
	}
	c := call{t.Name, t.Args, t.Kwargs}
	if c.Args == nil {
		c.Args = []json.RawMessage{}
	}
	if c.Kwargs == nil {
		c.Kwargs = map[string]json.RawMessage{}
	}
	return json.Marshal(envelope{&c})
}

// errRaw has the same text as the Python binding's error.
var errRaw = errors.New("raw (non-decorated) payload on a decorated-task queue")

// UnmarshalJSON implements [json.Unmarshaler]. It fails if text is not a task. A worker moves a job
// with such a payload to the dead letters, as the other bindings do.
func (t *Task) UnmarshalJSON(text []byte) error {
	var e envelope
	if err := json.Unmarshal(text, &e); err != nil || e.Task == nil || e.Task.Task == "" {
		return errors.Join(errRaw, err)
	}
	*t = Task{e.Task.Task, e.Task.Args, e.Task.Kwargs}
	return nil
}

// Handlers maps task names to functions. Pass its Handle method to honker.Queue.Work:
//
//	err := honker.NewQueue[task.Task](db, "emails", nil).Work(ctx, handlers.Handle, nil)
type Handlers map[string]func(context.Context, Task) (result any, err error)

// Handle calls the function for the job's task and saves the returned value as the job's result. It
// rejects a job with an unknown task name, which becomes a dead letter.
func (h Handlers) Handle(ctx context.Context, job *honker.Job[Task]) error {
	run := h[job.Args.Name]
	if run == nil {
		known := strings.Join(slices.Sorted(maps.Keys(h)), ", ")
		return honker.Reject(fmt.Errorf("unknown task: %q; known are: %s", job.Args.Name, known))
	}
	result, err := run(ctx, job.Args)
	if err != nil {
		return err
	}
	return job.SetResult(result)
}
