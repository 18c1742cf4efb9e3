package admin

import (
	"context"
	"fmt"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// ScheduleReport is a schedule and the outcome of its last job.
type ScheduleReport struct {
	honker.ScheduleInfo
	// LastPhase is the phase of LastJob. It is [honker.PhaseDone] if the job is not in the database any more, because it
	// was acked, cancelled or discarded, and "" if there is no last job.
	LastPhase honker.Phase
}

// Schedules returns all schedules with the outcomes of their last jobs, sorted by name. It never waits for the writer. It
// returns [honker.ErrInvalid] if db is nil.
func Schedules(ctx context.Context, db *honker.DB) ([]ScheduleReport, error) {
	if _, err := engineOf(db); err != nil {
		return nil, engine.Wrap("list schedules", "", err)
	}
	infos, err := db.Scheduler().List(ctx)
	if err != nil {
		return nil, err
	}
	var ids []int64
	for _, s := range infos {
		if s.LastJob != 0 {
			ids = append(ids, s.LastJob)
		}
	}
	phases := make(map[int64]honker.Phase, len(ids))
	if len(ids) > 0 {
		for job, err := range EachJob(ctx, db, JobFilter{IDs: ids}, &PageOptions{Limit: maxLimit}) {
			if err != nil {
				return nil, engine.Wrap("list schedules", "", err)
			}
			phases[job.ID] = job.Phase
		}
	}
	all := make([]ScheduleReport, len(infos))
	for i, s := range infos {
		all[i] = ScheduleReport{ScheduleInfo: s, LastPhase: phases[s.LastJob]}
		if s.LastJob != 0 && all[i].LastPhase == "" {
			all[i].LastPhase = honker.PhaseDone
		}
	}
	return all, nil
}

// skips reports schedules that have skipped the last time at which they were due.
func (s *search) skips(all []row.SkippedFire) {
	for _, f := range all {
		s.add(Problem{Code: ProblemScheduleMissed, Name: f.Name, Since: f.At,
			Text:    fmt.Sprintf("schedule %s skipped its last time, %s, because no scheduler ran", f.Name, f.At.Format("2006-01-02 15:04:05 -0700")),
			Actions: []Action{{Verb: ActionTriggerSchedule, Name: f.Name}}})
	}
}
