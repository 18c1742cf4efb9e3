// Package task is the envelope of honker's task workers in other languages: calls of named
// functions, as its Python and JVM bindings write and read them. A honker.Queue[task.Task]
// feeds those workers, and [Handlers] stands in for them.
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

// Task is a call of a named function.
type Task struct {
	Name   string // for Python "module.function"
	Args   []json.RawMessage
	Kwargs map[string]json.RawMessage
}

// New returns a call of the function name with args, each as JSON. Set Kwargs for
// arguments by name.
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

// Arg reads the argument at place i into v. [honker.ErrNotFound]: there are not so many.
func (t Task) Arg(i int, v any) error {
	if i < 0 || i >= len(t.Args) {
		return engine.Wrap("task", t.Name, fmt.Errorf("argument %d of %d: %w", i, len(t.Args), honker.ErrNotFound))
	}
	return t.read(t.Args[i], v)
}

// Kwarg reads the argument called name into v. [honker.ErrNotFound]: there is none.
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

// envelope is an object with one key.
type envelope struct {
	Task *call `json:"__honker_task__"`
}

type call struct {
	Task   string                     `json:"task"`
	Args   []json.RawMessage          `json:"args"`
	Kwargs map[string]json.RawMessage `json:"kwargs"`
}

// MarshalJSON writes the envelope. A task without a name is [honker.ErrInvalid].
func (t Task) MarshalJSON() ([]byte, error) {
	if t.Name == "" {
		return nil, fmt.Errorf("%w: task without a name", honker.ErrInvalid)
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

// errRaw has the text of the Python binding.
var errRaw = errors.New("raw (non-decorated) payload on a decorated-task queue")

// UnmarshalJSON reads the envelope. Anything else is an error: a job with such a payload
// goes to the dead letters, as it does in the other bindings.
func (t *Task) UnmarshalJSON(text []byte) error {
	var e envelope
	if err := json.Unmarshal(text, &e); err != nil || e.Task == nil || e.Task.Task == "" {
		return errors.Join(errRaw, err)
	}
	*t = Task{e.Task.Task, e.Task.Args, e.Task.Kwargs}
	return nil
}

// Handlers are functions by name. Its Handle is a handler for honker.Queue.Work on a queue that
// other bindings feed:
//
//	err := honker.NewQueue[task.Task](db, "emails", nil).Work(ctx, handlers.Handle, nil)
type Handlers map[string]func(context.Context, Task) (result any, err error)

// Handle runs the task and saves what it returns as the job's result. A name that it does
// not know goes to the dead letters.
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
