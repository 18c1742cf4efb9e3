package flow

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// State is the state of a run. The values are stable.
type State string

// The states of a run.
const (
	StateWaiting   State = State(row.FlowIsWaiting) // for a worker, a time, a signal, or a run that it has called
	StateRunning   State = State(row.FlowIsRunning)
	StateDone      State = State(row.FlowIsDone)
	StateFailed    State = State(row.FlowIsFailed) // its job is dead or was deleted
	StateCancelled State = State(row.FlowIsCancelled)
)

// States lists the states of a run.
var States = []State{StateWaiting, StateRunning, StateDone, StateFailed, StateCancelled}

// Run describes a run.
type Run struct {
	Flow, ID             string
	Job                  int64  // its job, in the queue flow:<flow>
	ParentFlow, ParentID string // run that has called it; "" for none
	State                State
	StartedAt            time.Time
	EndedAt              time.Time // zero for a run that is not over
	RunAt                time.Time // of a waiting run: when it goes on at the latest; zero if it waits without a limit
	Attempts             int       // of its job; a suspension does not count
	LastError            string    // of the last attempt, or of the dead letter
	Cancelled            bool      // a cancellation was requested
	Undoing              string    // error for which the run is being, or was, undone; "" for none
	Steps                int       // number of recorded steps
}

// Detail describes a run with its steps and signals.
type Detail struct {
	Run
	Timeline []StepInfo                 // the recorded steps in the order in which the run came to them
	Signals  map[string]json.RawMessage // values by name
	Decoded  bool                       // [honker.Options.Codec] has decoded the values, which may be encrypted in the database
}

// StepState is the state of a recorded step. The values are stable.
type StepState string

// The states of a step.
const (
	StepDone    StepState = "done"
	StepWaits   StepState = "waits"     // a Sleep, Wait or Call that is not over, or an undo that is retried
	StepTimeout StepState = "timed out" // a Wait whose signal has not come in time
)

// StepInfo describes a recorded step.
type StepInfo struct {
	Name             string
	Kind             string // "step", "sleep", "wait", "call", "version" or "undo"
	State            StepState
	BeganAt          time.Time
	EndedAt          time.Time       // zero for a step that waits, and for a Wait that a signal has ended
	Until            time.Time       // end of a Sleep, or of the time that a Wait waits; zero for none
	Value            json.RawMessage // result, or value of the signal; nil if there is none yet
	CallFlow, CallID string          // run that a Call has started
}

// ListOptions configures List. The zero value of a field selects its default.
type ListOptions struct {
	Flow   string // only runs of this flow
	State  State  // only runs in this state
	Before int64  // only runs whose Job is smaller, for the next page
	Limit  int    // default 100, at most 1000
}

const (
	defaultList = 100
	maxList     = 1000
)

// List returns runs, newest first. It reads the runs that opts does not select too, so a rare flow or state may take
// long. opts may be nil. List returns [honker.ErrInvalid] for an unknown State, and for a negative Before or Limit.
func List(ctx context.Context, db *honker.DB, opts *ListOptions) ([]Run, error) {
	all, err := list(ctx, engine.Of(db), opts)
	return all, engine.Wrap("list runs", "", err)
}

func list(ctx context.Context, e *engine.Engine, opts *ListOptions) (all []Run, err error) {
	f := row.FlowFilter{Before: math.MaxInt64, Limit: defaultList}
	if opts != nil {
		switch {
		case opts.Before < 0 || opts.Limit < 0:
			return nil, fmt.Errorf("%w: Before and Limit must not be negative", honker.ErrInvalid)
		case opts.State != "" && !slices.Contains(States, opts.State):
			return nil, fmt.Errorf("%w: unknown state %q", honker.ErrInvalid, opts.State)
		}
		f.Flow, f.State = opts.Flow, row.FlowState(opts.State)
		if opts.Before > 0 {
			f.Before = opts.Before
		}
		if opts.Limit > 0 {
			f.Limit = min(opts.Limit, maxList)
		}
	}
	err = e.Read(ctx, func(ctx context.Context, q engine.Querier) error {
		now := e.NowAt(ctx)
		views, err := e.Stores.Flows.List(ctx, q, f, now)
		for _, v := range views {
			all = append(all, runOf(v, now))
		}
		return err
	})
	return all, err
}

func runOf(v row.FlowView, now time.Time) Run {
	r := Run{
		Flow: v.Flow, ID: v.ID, Job: v.Job, ParentFlow: v.ParentFlow, ParentID: v.ParentID, State: State(v.State),
		StartedAt: v.StartedAt, EndedAt: v.EndedAt, RunAt: v.RunAt, Attempts: int(v.Attempts), LastError: v.LastError,
		Cancelled: v.Cancelled, Undoing: v.Failure, Steps: v.Steps,
	}
	if r.RunAt.After(now.Add(unbounded / 2)) {
		r.RunAt = time.Time{}
	}
	return r
}

// Get returns a run with its steps and signals. It returns [honker.ErrNotFound] if there is no such run, or if it is no
// longer kept.
func Get(ctx context.Context, db *honker.DB, flow, id string) (Detail, error) {
	d, err := get(ctx, engine.Of(db), flow, id)
	return d, failRun("get", flow, id, err)
}

func get(ctx context.Context, e *engine.Engine, flow, id string) (d Detail, err error) {
	var h row.FlowHistory
	var now time.Time
	err = e.Snapshot(ctx, func(ctx context.Context, q engine.Querier) error {
		now = e.NowAt(ctx)
		r, found, err := e.Stores.Flows.Find(ctx, q, flow, id)
		if err == nil && !found {
			err = honker.ErrNotFound
		}
		if err != nil {
			return err
		}
		views, err := e.Stores.Flows.List(ctx, q, row.FlowFilter{Flow: flow, Before: r.Job + 1, Limit: 1}, now)
		if err != nil {
			return err
		}
		d.Run = runOf(views[0], now)
		h, _, err = e.Stores.Flows.History(ctx, q, r.Job)
		return err
	})
	if err != nil {
		return Detail{}, err
	}
	d.Decoded = e.Codec != nil
	d.Signals = make(map[string]json.RawMessage, len(h.Signals))
	for name, value := range h.Signals {
		if d.Signals[name], err = shown(ctx, e, flow, value); err != nil {
			return Detail{}, err
		}
	}
	slices.SortFunc(h.Steps, func(a, b row.FlowStepRow) int { return cmp.Compare(a.Seq, b.Seq) })
	for _, s := range h.Steps {
		info, err := stepInfo(ctx, e, d, s, now)
		if err != nil {
			return Detail{}, err
		}
		d.Timeline = append(d.Timeline, info)
	}
	return d, nil
}

func stepInfo(ctx context.Context, e *engine.Engine, d Detail, s row.FlowStepRow, now time.Time) (i StepInfo, err error) {
	i = StepInfo{Name: s.Name, Kind: kindNames[s.Kind], State: StepDone, BeganAt: s.Began, EndedAt: s.Ended, Until: s.Until}
	value, signalled := d.Signals[s.Name]
	switch {
	case s.Kind == row.FlowSleep && s.Until.After(now), s.Kind == row.FlowWait && s.Ended.IsZero() && !signalled, s.Kind == row.FlowUndo && s.Ended.IsZero():
		i.State = StepWaits
	case s.Kind == row.FlowSleep:
		i.EndedAt = s.Until
	case s.Kind == row.FlowWait && !s.Ended.IsZero():
		i.State = StepTimeout
	case s.Kind == row.FlowWait:
		i.Value = value
	case s.Kind == row.FlowCall:
		return callInfo(ctx, e, d, s, i)
	case s.Kind != row.FlowUndo:
		i.Value, err = shown(ctx, e, d.Flow, s.Value)
	}
	return i, err
}

// callInfo completes the description of a call.
func callInfo(ctx context.Context, e *engine.Engine, d Detail, s row.FlowStepRow, i StepInfo) (StepInfo, error) {
	var r called[json.RawMessage]
	if err := e.DecodeJob(ctx, QueuePrefix+d.Flow, s.Value, &r); err != nil {
		return i, fmt.Errorf("call %q: %w", s.Name, err)
	}
	i.CallFlow, i.CallID = r.Flow, cmp.Or(r.ID, childID(d.ID, s.Name))
	if s.Ended.IsZero() {
		i.State = StepWaits
	} else if r.Failed == nil {
		i.Value = r.Result
	}
	return i, nil
}

// shown returns a stored value as JSON.
func shown(ctx context.Context, e *engine.Engine, flow, value string) (v json.RawMessage, err error) {
	err = e.DecodeJob(ctx, QueuePrefix+flow, value, &v)
	return v, err
}
