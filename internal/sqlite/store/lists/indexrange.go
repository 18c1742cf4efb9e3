package lists

import (
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/rows"
)

// An indexRange is a range of an index that holds, per queue, the jobs of some phases.
type indexRange struct {
	in     row.Table
	index  string
	all    string // condition of the partial index; "1" if it has all rows
	within string // additional condition on a row; ?3 is the current second
	levels bool   // seek per priority; the index has priority and time after the queue
}

// selectRanges returns the ranges that cover the phases of s. They may contain other jobs too, and
// they may overlap.
func selectRanges(s *selection) (all []indexRange) {
	add := func(wanted bool, in indexRange) {
		if wanted {
			all = append(all, in)
		}
	}
	ready, scheduled := s.HasPhase(row.PhaseReady), s.HasPhase(row.PhaseScheduled)
	both := waitingRange
	both.levels = false
	add(ready && scheduled, both)
	add(ready && !scheduled, waitingRange.where("j.run_at <= ?3"))
	add(!ready && scheduled, waitingRange.where("j.run_at > ?3"))
	add(s.HasPhase(row.PhaseRunning), claimedRange.where("j.claim_expires_at >= ?3"))
	add(s.HasPhase(row.PhaseLapsed, row.PhaseExpired), claimedRange.where("(j.claim_expires_at < ?3 OR j.claim_expires_at IS NULL)"))
	add(s.HasPhase(row.PhaseExpired), overdueRange.where("j.expires_at <= ?3"))
	add(s.HasPhase(row.PhaseExpired), spentRange.where("j.run_at <= ?3"))
	add(s.HasPhase(row.PhaseHeld), heldRange)
	add(s.HasPhase(row.PhaseDead), deadRange)
	add(s.HasPhase(row.PhaseDone), doneRange)
	return all
}

// where returns a copy of the range with an additional condition.
func (in indexRange) where(condition string) indexRange {
	in.within = " AND " + condition
	return in
}

// queues returns a WITH clause that names the queues as n: those of s, or all queues in the index.
// If the range is ordered by priority, the clause also names their priorities in use as lv. ?4 holds
// the queues of s.
func (in indexRange) queues(s *selection) string {
	names := in.names("n")
	if len(s.Queues) > 0 {
		names = `n(queue) AS (SELECT DISTINCT value FROM json_each(?4))`
	}
	if in.levels {
		names += `,
  lv(queue, p) AS (SELECT queue, (SELECT priority FROM _honker_live INDEXED BY _honkerx_live_pending
      WHERE queue = n.queue AND state = 'pending' ORDER BY priority DESC LIMIT 1) FROM n
    UNION ALL SELECT queue, (SELECT priority FROM _honker_live INDEXED BY _honkerx_live_pending
      WHERE queue = lv.queue AND state = 'pending' AND priority < lv.p ORDER BY priority DESC LIMIT 1) FROM lv WHERE p IS NOT NULL)`
	}
	return `WITH RECURSIVE ` + names
}

// names returns a table expression, called name, of all queues in the index.
func (in indexRange) names(name string) string {
	return rows.SkipScan(name, "queue", tables[in.in].name+" INDEXED BY "+in.index+" WHERE "+in.all)
}

// of returns the name of the table of queues, or of queues and priorities.
func (in indexRange) of() string {
	if in.levels {
		return "lv"
	}
	return "n"
}

// jobs returns the FROM clause for the jobs j of a queue, or of a queue and priority.
func (in indexRange) jobs() string {
	from := tables[in.in].name + ` AS j INDEXED BY ` + in.index + ` WHERE j.queue = ` + in.of() + `.queue AND ` + in.all + in.within
	if in.levels {
		from += ` AND j.priority = lv.p`
	}
	return from
}

// query returns a statement that selects the given columns from all jobs j of the range.
func (in indexRange) query(s *selection, what string) string {
	return in.queues(s) + `
SELECT ` + what + ` FROM ` + in.of() + ` CROSS JOIN ` + in.jobs()
}

// All ranges. Jobs in overdueRange and spentRange are also in waitingRange.
var (
	waitingRange = indexRange{index: "_honkerx_live_pending", all: "state = 'pending'", levels: true}
	claimedRange = indexRange{index: "_honker_live_processing_deadline", all: "state = 'processing'"}
	overdueRange = indexRange{index: "_honkerx_live_deadline", all: "state = 'pending' AND expires_at IS NOT NULL"}
	spentRange   = indexRange{index: "_honkerx_live_exhausted", all: "state = 'pending' AND attempts >= max_attempts"}
	heldRange    = indexRange{index: "_honkerx_live_held", all: "state = '" + row.Held + "'"}
	deadRange    = indexRange{in: row.Dead, index: "_honkerx_dead_queue", all: "1"}
	doneRange    = indexRange{in: row.Done, index: "_honkerx_done_queue", all: "1"}
)
