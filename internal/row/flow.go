package row

import "time"

// FlowOutcome is the end of a run of package flow.
type FlowOutcome string

// The outcomes of a run. A run whose job is dead has none: it goes on if the job is requeued.
const (
	FlowDone      FlowOutcome = "done"
	FlowCancelled FlowOutcome = "cancelled"
)

// FlowRun is a run of package flow.
type FlowRun struct {
	Job       int64 // job of the run, dead or alive; its ID is also the ID of the run's steps
	Flow, ID  string
	Parent    int64 // job of the run that called this run; 0 for none
	StartedAt time.Time
	EndedAt   time.Time // zero for a run that is not over
	Outcome   FlowOutcome
	Cancelled bool   // a cancellation was requested
	Failure   string // error for which the run is being undone; "" for none
}

// FlowKind is the kind of a step.
type FlowKind int

// The kinds of steps.
const (
	FlowStep FlowKind = iota
	FlowSleep
	FlowWait
	FlowCall
	FlowVersion
	FlowUndo
)

// FlowStepRow is a recorded step of a run. The zero Ended means that the run has reached the step but not finished it.
type FlowStepRow struct {
	Name  string
	Kind  FlowKind
	Seq   int    // position among the steps of the run, from 1
	Value string // JSON
	Began time.Time
	Ended time.Time
	Until time.Time // end of a FlowSleep, or of the time that a FlowWait waits; zero for none
}

// FlowHistory is the recorded state of a run.
type FlowHistory struct {
	Run     FlowRun
	Steps   []FlowStepRow     // by Seq
	Signals map[string]string // values by name, as JSON
}

// FlowSignal is a signal to a run.
type FlowSignal struct {
	Flow, ID, Name string
	Value          string // JSON
}

// FlowState is the state of a run, by its job.
type FlowState string

// The states of a run.
const (
	FlowIsWaiting   FlowState = "waiting"
	FlowIsRunning   FlowState = "running"
	FlowIsDone      FlowState = "done"
	FlowIsFailed    FlowState = "failed" // its job is dead or was deleted
	FlowIsCancelled FlowState = "cancelled"
)

// FlowFilter selects runs.
type FlowFilter struct {
	Flow   string    // "" for all flows
	State  FlowState // "" for all states
	Before int64     // only runs with smaller jobs
	Limit  int
}

// FlowView is a run with the state of its job.
type FlowView struct {
	FlowRun
	ParentFlow, ParentID string
	State                FlowState
	RunAt                time.Time // of a waiting job
	Attempts             int64
	LastError            string
	Steps                int // recorded steps
}
