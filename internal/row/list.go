package row

import (
	"cmp"
	"slices"
)

// Order is that of a list of jobs.
type Order int

const (
	NewestFirst   Order = iota // by id, from the highest
	OldestFirst                // by id
	ClaimOrder                 // jobs of one queue that wait, as its claims take them
	LastDiedFirst              // dead jobs, the last that died first
)

// Place is where a job stands in an order: what it is ordered by, and its id. A and B are what the
// file says, of whatever type: the priority and run_at with ClaimOrder, died_at with LastDiedFirst.
type Place struct {
	ID   int64
	In   Table
	A, B any
}

// Access is by what the jobs of a list are found.
type Access int

const (
	// Walk goes by the order itself, over all jobs or over those with side rows, where only these can
	// match. It costs what it passes.
	Walk Access = iota
	// Collect takes ids from the indexes of the queues and phases that are asked for, and sorts them.
	// It costs all jobs that lie there, 80 ns each.
	Collect
)

// compareIDs is the order by ids. A live job comes before a dead one with its id, which
// an application may have made.
func (o Order) CompareIDs(a, b Place) int {
	if o == NewestFirst {
		return cmp.Or(cmp.Compare(b.ID, a.ID), cmp.Compare(a.In, b.In))
	}
	return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.In, b.In))
}

// tables are those in which jobs of the phases lie.
func (s *JobSelect) Tables() (in []Table) {
	if s.HasPhase(PhaseReady, PhaseScheduled, PhaseRunning, PhaseLapsed, PhaseHeld, PhaseExpired) {
		in = append(in, Live)
	}
	if s.HasPhase(PhaseDead) {
		in = append(in, Dead)
	}
	if s.HasPhase(PhaseDone) {
		in = append(in, Done)
	}
	return in
}

func (s *JobSelect) HasPhase(of ...Phase) bool {
	return s.Phases == nil || slices.ContainsFunc(of, func(p Phase) bool { return slices.Contains(s.Phases, p) })
}

// Table is where a job lies.
type Table int

const (
	Live Table = iota
	Dead
	Done
)

// JobSelect picks jobs. What is set must all match. Times are unix seconds, 0 is none.
type JobSelect struct {
	In          Table    // for Select; a list looks into all that Phases can be in
	Queues      []string // empty: any
	Phases      []Phase  // at Now; nil: any
	Now         int64
	IDs         []int64 // nil: any
	Key         string
	Unique      string
	Batch       int64
	Worker      string
	Error       string
	Contains    string
	Where       map[string]string // JSON paths
	Header      map[string]string // JSON paths
	MinAttempts int64

	CreatedSince, CreatedBefore, RunSince, RunBefore, DiedSince, DiedBefore int64
}

// SelectedJob is a job that a JobSelect has picked.
type SelectedJob struct {
	ID        int64
	Queue     string
	DiedAt    int64 // 0: live
	LastError string
}
