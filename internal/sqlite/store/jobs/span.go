package jobs

import (
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/rows"
)

// A span is a range of an index that holds, per queue, the jobs of some phases.
type span struct {
	in     row.Table
	index  string
	all    string // condition of the partial index; "1" if it has all rows
	within string // additional condition on a row; ?3 is the current second
	levels bool   // seek per priority; the index has priority and time after the queue
}

// selectSpans returns the spans that cover the phases of s. They may contain other jobs too, and
// they may overlap.
func selectSpans(s *selection) (all []span) {
	add := func(wanted bool, in span) {
		if wanted {
			all = append(all, in)
		}
	}
	ready, scheduled := s.HasPhase(row.PhaseReady), s.HasPhase(row.PhaseScheduled)
	both := waitingSpan
	both.levels = false
	add(ready && scheduled, both)
	add(ready && !scheduled, waitingSpan.where("j.run_at <= ?3"))
	add(!ready && scheduled, waitingSpan.where("j.run_at > ?3"))
	add(s.HasPhase(row.PhaseRunning), claimedSpan.where("j.claim_expires_at >= ?3"))
	add(s.HasPhase(row.PhaseLapsed, row.PhaseExpired), claimedSpan.where("(j.claim_expires_at < ?3 OR j.claim_expires_at IS NULL)"))
	add(s.HasPhase(row.PhaseExpired), overdueSpan.where("j.expires_at <= ?3"))
	add(s.HasPhase(row.PhaseExpired), spentSpan.where("j.run_at <= ?3"))
	add(s.HasPhase(row.PhaseHeld), heldSpan)
	add(s.HasPhase(row.PhaseDead), deadSpan)
	add(s.HasPhase(row.PhaseDone), doneSpan)
	return all
}

// where returns a copy of the span with an additional condition.
func (in span) where(condition string) span {
	in.within = " AND " + condition
	return in
}

// queues returns a WITH clause that names the queues as n: those of s, or all queues in the index.
// If the span is ordered by priority, the clause also names their priorities in use as lv. ?4 holds
// the queues of s.
func (in span) queues(s *selection) string {
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
func (in span) names(name string) string {
	return rows.SkipScan(name, "queue", tables[in.in].name+" INDEXED BY "+in.index+" WHERE "+in.all)
}

// of returns the name of the table of queues, or of queues and priorities.
func (in span) of() string {
	if in.levels {
		return "lv"
	}
	return "n"
}

// jobs returns the FROM clause for the jobs j of a queue, or of a queue and priority.
func (in span) jobs() string {
	from := tables[in.in].name + ` AS j INDEXED BY ` + in.index + ` WHERE j.queue = ` + in.of() + `.queue AND ` + in.all + in.within
	if in.levels {
		from += ` AND j.priority = lv.p`
	}
	return from
}

// query returns a statement that selects the given columns from all jobs j of the span.
func (in span) query(s *selection, what string) string {
	return in.queues(s) + `
SELECT ` + what + ` FROM ` + in.of() + ` CROSS JOIN ` + in.jobs()
}

// All spans. Jobs in overdueSpan and spentSpan are also in waitingSpan.
var (
	waitingSpan = span{index: "_honkerx_live_pending", all: "state = 'pending'", levels: true}
	claimedSpan = span{index: "_honker_live_processing_deadline", all: "state = 'processing'"}
	overdueSpan = span{index: "_honkerx_live_deadline", all: "state = 'pending' AND expires_at IS NOT NULL"}
	spentSpan   = span{index: "_honkerx_live_exhausted", all: "state = 'pending' AND attempts >= max_attempts"}
	heldSpan    = span{index: "_honkerx_live_held", all: "state = '" + row.Held + "'"}
	deadSpan    = span{in: row.Dead, index: "_honkerx_dead_queue", all: "1"}
	doneSpan    = span{in: row.Done, index: "_honkerx_done_queue", all: "1"}
)
