package admin

import (
	"context"
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
	ProblemFailing        ProblemCode = "failing"           // most attempts of a queue fail
	ProblemNoWorker       ProblemCode = "no_worker"         // jobs are ready, but no worker runs
	ProblemWaitsForDead   ProblemCode = "waits_for_dead"    // jobs wait for a dead job
	ProblemLapsed         ProblemCode = "lapsed"            // claims have expired, but no worker has picked up their jobs
	ProblemLate           ProblemCode = "late"              // a job has been ready much longer than usual
	ProblemStuck          ProblemCode = "stuck"             // a job runs much longer than usual
	ProblemOverdue        ProblemCode = "overdue"           // a schedule was due and did not fire
	ProblemBlocked        ProblemCode = "blocked"           // a session keeps others waiting for its locks; PostgreSQL only
	ProblemHeld           ProblemCode = "held"              // jobs are held even though their key has room; indicates a bug in honker
	ProblemConnections    ProblemCode = "connections"       // the server has few connections left; PostgreSQL only
	ProblemRelayStuck     ProblemCode = "relay_stuck"       // a partition of a relay queue does not get past a message
	ProblemDisk           ProblemCode = "disk"              // the disk is nearly full
	ProblemDead           ProblemCode = "dead"              // jobs died in the last hour
	ProblemRelayDead      ProblemCode = "relay_dead"        // messages of a relay queue died in the last hour
	ProblemScheduleMissed ProblemCode = "schedule_missed"   // a schedule has skipped its last time
	ProblemBehind         ProblemCode = "consumer_behind"   // a consumer or group isn't reading its events
	ProblemSlow           ProblemCode = "consumer_slow"     // a consumer reads, but is an hour behind and does not catch up
	ProblemPinned         ProblemCode = "compaction_pinned" // a consumer or group keeps events beyond the topic's retention
	ProblemWAL            ProblemCode = "wal"               // the write-ahead log is larger than Options.WALLimit
	ProblemSnapshot       ProblemCode = "old_snapshot"      // an old snapshot keeps deleted jobs from being removed; PostgreSQL only
	ProblemVacuum         ProblemCode = "not_vacuumed"      // autovacuum does not remove deleted jobs; PostgreSQL only
	ProblemStandby        ProblemCode = "standby_behind"    // a standby of the server has fallen behind; PostgreSQL only
	ProblemNotices        ProblemCode = "no_notices"        // this process is not told about commits of others; PostgreSQL only
	ProblemRights         ProblemCode = "rights"            // the role may not see the cause of a problem; PostgreSQL only
	ProblemNotMaintained  ProblemCode = "not_maintained"    // there is maintenance work, but no process runs Maintain
	ProblemPaused         ProblemCode = "paused"            // a pause without an end time is older than a day
	ProblemClock          ProblemCode = "clock"             // the newest job or event is in the future
)

// problemOrder lists the codes in the order of the constants.
var problemOrder = []ProblemCode{
	ProblemFailing, ProblemNoWorker, ProblemWaitsForDead, ProblemLapsed, ProblemLate, ProblemStuck, ProblemOverdue, ProblemBlocked, ProblemHeld,
	ProblemConnections, ProblemRelayStuck, ProblemDisk, ProblemDead, ProblemRelayDead, ProblemScheduleMissed, ProblemBehind, ProblemSlow, ProblemPinned, ProblemWAL, ProblemSnapshot, ProblemVacuum,
	ProblemStandby, ProblemNotices, ProblemRights, ProblemNotMaintained, ProblemPaused, ProblemClock,
}

// Problem is a fault or a condition that an operator should know about.
type Problem struct {
	Code     ProblemCode
	Severity Severity
	Text     string       // sentence that names the affected object
	Since    time.Time    // zero if unknown
	N        honker.Count // number of affected jobs, events or bytes; zero if the problem has none
	Cause    string       // the error behind the problem, such as the commonest error of a queue; "" if there is none

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

// Problems returns the file's problems, the most severe first. Problems of the same code are ordered by
// size, then by age; see [GroupProblems]. The result is empty if there are none.
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
	return sorted(found), nil
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
	p.Severity = p.Code.Severity()
	p.Do = instructions(p.Actions)
	s.found = append(s.found, p)
}

// ages holds the ages at which a condition becomes a problem.
var ages = row.ProblemAges{Late: waitsLong, Unseen: behindFor, Death: youngDeaths, Pause: pausedFor}

func (s *search) all(ctx context.Context, stats []engine.QueueStats) error {
	for _, look := range []func(context.Context, []engine.QueueStats) error{s.failing, s.queues, s.relays} {
		if err := look(ctx, stats); err != nil {
			return err
		}
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
	if err := s.stuck(ctx); err != nil {
		return err
	}
	s.skips(t.Skips)
	if err := s.readers(ctx, t.Behind); err != nil {
		return err
	}
	s.server(&t)
	s.notices()
	s.clock(t.Newest)
	s.log()
	if err := s.disk(ctx); err != nil {
		return err
	}
	return s.maintenance(ctx, stats)
}
