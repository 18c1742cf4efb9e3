package admin

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/store"
)

// Severity says how soon a problem should be looked at.
type Severity string

// The severities.
const (
	SeverityError Severity = "error" // work is not being done, or is about to stop
	SeverityWarn  Severity = "warn"  // something has failed, was forgotten, or grows
)

// ProblemCode is what a problem is. The values are for scripts, and stay.
type ProblemCode string

// The problems, the most severe first.
const (
	ProblemNoWorker      ProblemCode = "no_worker"         // jobs are ready, and no worker runs
	ProblemWaitsForDead  ProblemCode = "waits_for_dead"    // jobs wait for a job that is dead
	ProblemLapsed        ProblemCode = "lapsed"            // claims ran out, and no worker takes their jobs up
	ProblemLate          ProblemCode = "late"              // a job has been ready for far longer than is usual
	ProblemOverdue       ProblemCode = "overdue"           // a schedule was to fire, and did not
	ProblemHeld          ProblemCode = "held"              // jobs are held for a key that has room: a fault of honker
	ProblemDisk          ProblemCode = "disk"              // the disk is nearly full
	ProblemDead          ProblemCode = "dead"              // jobs have died in the last hour
	ProblemBehind        ProblemCode = "consumer_behind"   // a consumer or group does not read its events
	ProblemPinned        ProblemCode = "compaction_pinned" // it also keeps events from being deleted
	ProblemWAL           ProblemCode = "wal"               // the write-ahead log is larger than Options.WALLimit
	ProblemNotMaintained ProblemCode = "not_maintained"    // there is something to maintain, and no process does
	ProblemPaused        ProblemCode = "paused"            // a pause without an end is older than a day
	ProblemClock         ProblemCode = "clock"             // the newest job or event is of the future
)

// problemOrder is that of the constants.
var problemOrder = []ProblemCode{
	ProblemNoWorker, ProblemWaitsForDead, ProblemLapsed, ProblemLate, ProblemOverdue, ProblemHeld, ProblemDisk,
	ProblemDead, ProblemBehind, ProblemPinned, ProblemWAL, ProblemNotMaintained, ProblemPaused, ProblemClock,
}

// Problem is something that is wrong, or that an operator should know.
type Problem struct {
	Code     ProblemCode
	Severity Severity
	Text     string       // one sentence, which names what it is about
	Since    time.Time    // zero: unknown
	N        honker.Count // how many jobs, events or bytes it is about; zero: it is about none

	// What it is about, as far as it is about such a thing: a queue; a topic; and in it, or alone, a
	// key, a schedule, a consumer or a group.
	Queue, Topic, Name string

	// Do are commands of honker that help, the first one first. Empty: what helps is not a command, see
	// [ProblemCode.Help].
	Do []string
}

// After so long something is a problem: things that are as they should be are done within seconds.
const (
	waitsLong   = time.Minute     // for a worker
	lateUnknown = 5 * time.Minute // where it is not known how long jobs wait otherwise
	lateTimes   = 10              // as long as they did
	usualSpan   = 24 * time.Hour  // in which they did
	mostUsual   = 10              // queues of which that is looked up, by a few milliseconds each
	clockAhead  = time.Minute     // of another machine or container
	behindFor   = time.Hour       // of a consumer
	youngDeaths = time.Hour
	pausedFor   = 24 * time.Hour
)

// A disk is nearly full with less than diskLeft, or with less than one part in diskShare, unless that
// is diskEnough.
const (
	diskLeft   = 256 << 20
	diskShare  = 50
	diskEnough = int64(5) << 30
)

// problemStore are the statements that look for problems.
type problemStore interface {
	LapsedSince(ctx context.Context, q engine.Querier, queue string, now int64) (int64, error)
	DiedSince(ctx context.Context, q engine.Querier, since int64) ([]row.QueueDeaths, error)
	DeadMembers(ctx context.Context, q engine.Querier) ([]row.DeadMembers, error)
	LateTasks(ctx context.Context, q engine.Querier, by int64) ([]row.Late, error)
	Behind(ctx context.Context, q engine.Querier, before, now int64) ([]row.Behind, error)
	OldKeyPauses(ctx context.Context, q engine.Querier, beforeMS int64) ([]row.OldPause, error)
	HeldFree(ctx context.Context, q engine.Querier) ([]row.HeldKey, error)
	Newest(ctx context.Context, q engine.Querier) (int64, error)
	Retains(ctx context.Context, q engine.Querier) (topics, queues int64, err error)
}

var troubles problemStore = store.Problems{}

// Problems returns what is wrong, the most severe first, and empty if nothing is. It only looks, and
// reads a bounded number of rows: what [Queues] costs, and some milliseconds. So it finds up to a hundred problems of
// a kind, and does not judge consumers of patterns and those with a filter. What each code means, and what helps, says
// [ProblemCode.Help].
//
// A problem is there while its cause is: nothing is remembered between two calls but how long jobs of a queue have waited
// in a time that is over, and nothing runs when none is made. It never waits for the writer. nil as the DB is [honker.ErrInvalid].
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
			s := &search{q: q, engine: e, now: time.Now()}
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

// search is one look for problems.
type search struct {
	q      engine.Querier
	engine *engine.Engine
	now    time.Time
	found  []Problem
}

// add notes a problem.
func (s *search) add(p Problem) {
	p.Severity = SeverityWarn
	if slices.Index(problemOrder, p.Code) <= slices.Index(problemOrder, ProblemDisk) {
		p.Severity = SeverityError
	}
	s.found = append(s.found, p)
}

// ago is a time before now, in unix seconds.
func (s *search) ago(d time.Duration) int64 { return s.now.Add(-d).Unix() }

func (s *search) all(ctx context.Context, stats []engine.QueueStats) error {
	if err := s.queues(ctx, stats); err != nil {
		return err
	}
	for _, look := range []func(context.Context) error{
		s.waitsForDead, s.heldFree, s.deaths, s.keyPauses, s.schedules, s.consumers, s.clock, s.log, s.disk,
	} {
		if err := look(ctx); err != nil {
			return err
		}
	}
	return s.maintenance(ctx, stats)
}
