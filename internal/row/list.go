package row

import (
	"cmp"
	"slices"
)

// Order is the order of a list of jobs.
type Order int

const (
	NewestFirst   Order = iota // by descending id
	OldestFirst                // by ascending id
	ClaimOrder                 // waiting jobs of a single queue, in the order of its claims
	LastDiedFirst              // dead jobs, by descending time of death
)

// Place is the position of a job in an order: its id, its table and its sort keys. A and B are the
// sort keys as stored, of any type. They are the priority and run_at in ClaimOrder, died_at (A only)
// in LastDiedFirst, and unused in the other orders.
type Place struct {
	ID   int64
	In   Table
	A, B any
}

// Access is a method of finding the jobs of a list.
type Access int

const (
	// Walk follows the order itself and skips jobs that do not match. It reads only jobs with side
	// rows if no others can match. The cost is proportional to the jobs passed.
	Walk Access = iota
	// Collect reads the ids from the indexes of the requested queues and phases, and sorts them.
	// It must read all jobs in these queues and phases, at about 80 ns each.
	Collect
)

// CompareIDs compares two places by id, descending for NewestFirst and ascending otherwise. A live
// job comes before a dead job with the same id. Such a pair only exists if an application wrote it.
func (o Order) CompareIDs(a, b Place) int {
	if o == NewestFirst {
		return cmp.Or(cmp.Compare(b.ID, a.ID), cmp.Compare(a.In, b.In))
	}
	return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.In, b.In))
}

// Tables returns the tables that can contain jobs of the selected phases.
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

// HasPhase reports whether s selects any of the given phases. Nil Phases select all phases.
func (s *JobSelect) HasPhase(of ...Phase) bool {
	return s.Phases == nil || slices.ContainsFunc(of, func(p Phase) bool { return slices.Contains(s.Phases, p) })
}

// Table identifies the table that contains a job.
type Table int

const (
	Live Table = iota
	Dead
	Done
)

// JobSelect is a condition on jobs. A job must match every field that is set; a zero field matches
// all jobs. Since bounds are inclusive, Before bounds exclusive.
type JobSelect struct {
	In          Table    // used by Select only; a list reads all of Tables
	Queues      []string // empty for any
	Phases      []Phase  // as of Now; nil for any
	Now         int64
	IDs         []int64 // nil for any
	Key         string
	Unique      string
	Batch       int64
	Worker      string
	Error       string
	Contains    string
	Where       map[string]string // JSON path in the payload to value
	Header      map[string]string // JSON path in the headers to value
	MinAttempts int64

	CreatedSince, CreatedBefore, RunSince, RunBefore, DiedSince, DiedBefore int64
}

// SelectedJob is a job matched by a JobSelect.
type SelectedJob struct {
	ID        int64
	Queue     string
	DiedAt    int64 // 0 if the job is not dead
	LastError string
}
