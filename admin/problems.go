package admin

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// Severity indicates how soon a problem needs attention.
type Severity string

// The severities.
const (
	SeverityError Severity = "error" // work has stopped or is about to stop
	SeverityWarn  Severity = "warn"  // something failed, was forgotten, or keeps growing
)

// ProblemCode identifies a kind of problem. The values are stable, so scripts may depend on them.
type ProblemCode string

// Problem codes, the most severe first.
const (
	ProblemNoWorker      ProblemCode = "no_worker"         // jobs are ready, but no worker runs
	ProblemWaitsForDead  ProblemCode = "waits_for_dead"    // jobs wait for a dead job
	ProblemLapsed        ProblemCode = "lapsed"            // claims have expired, but no worker has picked up their jobs
	ProblemLate          ProblemCode = "late"              // a job has been ready much longer than usual
	ProblemOverdue       ProblemCode = "overdue"           // a schedule was due and did not fire
	ProblemBlocked       ProblemCode = "blocked"           // a session keeps others waiting for its locks; PostgreSQL only
	ProblemHeld          ProblemCode = "held"              // jobs are held even though their key has room; indicates a bug in honker
	ProblemDisk          ProblemCode = "disk"              // the disk is nearly full
	ProblemDead          ProblemCode = "dead"              // jobs died in the last hour
	ProblemBehind        ProblemCode = "consumer_behind"   // a consumer or group isn't reading its events
	ProblemPinned        ProblemCode = "compaction_pinned" // like consumer_behind, but the unread events are also kept beyond the retention
	ProblemWAL           ProblemCode = "wal"               // the write-ahead log is larger than Options.WALLimit
	ProblemSnapshot      ProblemCode = "old_snapshot"      // an old snapshot keeps deleted jobs from being removed; PostgreSQL only
	ProblemVacuum        ProblemCode = "not_vacuumed"      // autovacuum does not remove deleted jobs; PostgreSQL only
	ProblemNotMaintained ProblemCode = "not_maintained"    // there is maintenance work, but no process runs Maintain
	ProblemPaused        ProblemCode = "paused"            // a pause without an end time is older than a day
	ProblemClock         ProblemCode = "clock"             // the newest job or event is in the future
)

// problemOrder lists the codes in the order of the constants.
var problemOrder = []ProblemCode{
	ProblemNoWorker, ProblemWaitsForDead, ProblemLapsed, ProblemLate, ProblemOverdue, ProblemBlocked, ProblemHeld,
	ProblemDisk, ProblemDead, ProblemBehind, ProblemPinned, ProblemWAL, ProblemSnapshot, ProblemVacuum, ProblemNotMaintained, ProblemPaused,
	ProblemClock,
}

// Problem is a fault or a condition that an operator should know about.
type Problem struct {
	Code     ProblemCode
	Severity Severity
	Text     string       // sentence that names the affected object
	Since    time.Time    // zero if unknown
	N        honker.Count // number of affected jobs, events or bytes; zero if the problem has none

	// Affected object, if any. Name is the name of a key, schedule, consumer or group.
	Queue, Topic, Name string

	// Actions lists suggested steps, in order. If it is empty, see [ProblemCode.Help] for the remedy.
	Actions []Action
	// Do lists the Actions as instructions, such as "requeue job 7".
	Do []string
}

// Thresholds for reporting problems. In a healthy file, jobs and schedules run within seconds.
const (
	waitsLong   = time.Minute     // wait for a worker
	lateUnknown = 5 * time.Minute // same, if the usual wait is unknown
	lateTimes   = 10              // multiple of the usual wait
	usualSpan   = 24 * time.Hour  // period over which the usual wait is computed
	mostUsual   = 10              // maximum number of queues whose usual wait is looked up; each takes a few milliseconds
	clockAhead  = time.Minute     // tolerated difference between clocks
	behindFor   = time.Hour       // age of a consumer's oldest unread event
	youngDeaths = time.Hour
	pausedFor   = 24 * time.Hour
)

// A disk is nearly full if less than diskLeft bytes or less than 1/diskShare of its size is free. The
// share is ignored if at least diskEnough bytes are free.
const (
	diskLeft   = 256 << 20
	diskShare  = 50
	diskEnough = int64(5) << 30
)

// Problems returns the file's problems, the most severe first. The result is empty if there are none.
// Problems reads a bounded number of rows and takes a few milliseconds longer than [Queues]. It finds at
// most a hundred problems of each kind. Consumers that read a pattern or use a filter aren't checked.
// [ProblemCode.Help] explains each code.
//
// A problem is reported for as long as its cause persists. No state is kept between calls except a cache of
// the usual wait of each queue. Problems never waits for the writer. It returns [honker.ErrInvalid] if db
// is nil.
func Problems(ctx context.Context, db *honker.DB) ([]Problem, error) {
	e, err := engineOf(db)
	if err != nil {
		return nil, engine.Wrap("look for problems", "", err)
	}
	stats, err := e.Stats(ctx, "")
	if err != nil {
		return nil, engine.Wrap("look for problems", "", err)
	}
	var found []Problem
	err = e.Search(ctx, func(ctx context.Context) error {
		return e.Read(ctx, func(ctx context.Context, q engine.Querier) error {
			s := &search{q: q, engine: e, now: e.Now()}
			err := s.all(ctx, stats)
			found = s.found
			return err
		})
	})
	if err != nil {
		return nil, engine.Wrap("look for problems", "", err)
	}
	slices.SortStableFunc(found, func(a, b Problem) int {
		return cmp.Compare(slices.Index(problemOrder, a.Code), slices.Index(problemOrder, b.Code))
	})
	return found, nil
}

// search is the state of a running Problems.
type search struct {
	q      engine.Querier
	engine *engine.Engine
	now    time.Time
	found  []Problem
}

// add sets the severity of p and records it.
func (s *search) add(p Problem) {
	p.Severity = SeverityWarn
	if slices.Index(problemOrder, p.Code) <= slices.Index(problemOrder, ProblemDisk) {
		p.Severity = SeverityError
	}
	p.Do = instructions(p.Actions)
	s.found = append(s.found, p)
}

// ages holds the ages at which a condition becomes a problem.
var ages = row.ProblemAges{Late: waitsLong, Unseen: behindFor, Death: youngDeaths, Pause: pausedFor}

func (s *search) all(ctx context.Context, stats []engine.QueueStats) error {
	if err := s.queues(ctx, stats); err != nil {
		return err
	}
	t, err := s.engine.Stores.Problems.Problems(ctx, s.q, ages, s.now)
	if err != nil {
		return err
	}
	s.waitsForDead(t.DeadMembers)
	s.heldFree(t.HeldFree)
	s.deaths(t.Deaths)
	for _, p := range t.KeyPauses {
		s.oldPause(p.Queue, p.Key, p.Pause)
	}
	if err := s.schedules(ctx, t.Late); err != nil {
		return err
	}
	s.consumers(t.Behind)
	s.server(&t)
	s.clock(t.Newest)
	s.log()
	s.disk()
	return s.maintenance(ctx, stats)
}
