package row

import (
	"cmp"
	"slices"
	"time"
)

// Order is the order of a list of jobs.
type Order int

const (
	NewestFirst   Order = iota // by descending ID
	OldestFirst                // by ascending ID
	ClaimOrder                 // waiting jobs of a single queue, in the order of its claims
	LastDiedFirst              // dead jobs, by descending time of death
)

// Place is a job's position in an order: its table, ID and sort keys. In ClaimOrder, A and B are the priority and the
// run time. In LastDiedFirst, A is the time of death. The other orders do not use them.
type Place struct {
	ID   int64
	In   Table
	A, B SortKey
}

// SortKey is a sort key as stored. Only the database interprets it.
type SortKey struct {
	N     int64  `json:"n,omitempty"`
	Other string `json:"o,omitempty"` // a stored value that is not an integer, in the database's encoding; "" if the key is N
}

// ListRequest asks for the next part of a list.
type ListRequest struct {
	JobSelect
	Order  Order
	After  *Place   // last candidate of the previous part; nil for the first part
	Limit  int      // maximum number of candidates in the part
	Sorted int      // if Plan.Sorted is set, the maximum number of candidates in the first part, instead of Limit
	Plan   ListPlan // the previous part's Plan; zero for the first part
}

// ListPlan records how a database continues a list. Callers pass it from each part to the next.
type ListPlan struct {
	Passed int // candidates so far
	Looks  int // number of times that the database has considered another plan
	// Sorted means that each part sorts all jobs in the selected queues and phases, which makes a few large
	// parts cheaper than many small ones.
	Sorted bool
}

// ListPart is a part of a list. Places lists the candidates in order, and Jobs contains the selected ones.
type ListPart struct {
	Places []Place
	Jobs   map[int]Job // by index in Places
	Ended  bool        // there are no further candidates
	Plan   ListPlan
}

// ScanPart is like ListPart, but with brief details of each job.
type ScanPart struct {
	Places []Place
	Jobs   []SelectedJob // in list order
	Ended  bool
	Plan   ListPlan
}

// CompareIDs compares two places by ID, descending for NewestFirst and ascending otherwise. A live job comes before a
// dead job with the same ID. Such a pair exists only if an application wrote it.
func (o Order) CompareIDs(a, b Place) int {
	if o == NewestFirst {
		return cmp.Or(cmp.Compare(b.ID, a.ID), cmp.Compare(a.In, b.In))
	}
	return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.In, b.In))
}

// Tables returns the tables that can contain jobs in the selected phases.
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

// JobSelect is a condition on jobs. A job must match every field that is set; a zero field matches all jobs. Times
// are compared at the database's resolution, to which the bounds are rounded up. Since bounds are inclusive, and
// Before bounds are exclusive.
type JobSelect struct {
	In          Table    // used by Select only; a list reads all of Tables
	Queues      []string // empty for any
	Phases      []Phase  // at the time of the call; nil for any
	IDs         []int64  // nil for any
	Key         string
	Unique      string
	Batch       int64
	Worker      string            // live jobs only
	Error       string            // substring of the last error
	Contains    string            // substring of the payload
	Where       map[string]string // JSON path in the payload to value
	Header      map[string]string // JSON path in the headers to value
	MinAttempts int64
	Requeue     int64 // audit entry of the requeue that a live job has used no attempt since

	CreatedSince, CreatedBefore, RunSince, RunBefore time.Time
	DiedSince, DiedBefore                            time.Time // dead jobs only
}

// SelectedJob is a job matched by a JobSelect.
type SelectedJob struct {
	ID        int64
	Queue     string
	DiedAt    time.Time // zero if the job is not dead
	LastError string
	Left      bool // has attempts left
}
