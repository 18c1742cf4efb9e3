package store

import (
	"context"
	"database/sql"
	"strconv"
	"strings"

	"github.com/honker-go/honker/internal/row"
)

// StatsPhases are those of a look at queues.
var StatsPhases = []row.Phase{row.PhaseReady, row.PhaseScheduled, row.PhaseRunning, row.PhaseLapsed, row.PhaseHeld, row.PhaseExpired, row.PhaseDead}

// counted is a statement's part that counts jobs of a span by up to three conditions, a row for each
// queue or priority, and where they belong. Each count reads an entry of an index for each job, and
// the rows only of jobs with a claim that has lapsed, a deadline that has passed or no attempt left.
type counted struct {
	span
	phases     []row.Phase // that need it
	conditions []string
	add        func(c *row.QueueCounts, n [3]row.Count)
}

var allCounted = []counted{
	{waitingSpan, []row.Phase{row.PhaseReady, row.PhaseScheduled}, []string{"j.run_at <= ?3", "j.run_at > ?3"}, func(c *row.QueueCounts, n [3]row.Count) {
		c.Ready, c.Scheduled = c.Ready.Plus(n[0]), c.Scheduled.Plus(n[1])
	}},
	{claimedSpan, []row.Phase{row.PhaseRunning, row.PhaseLapsed, row.PhaseExpired}, []string{
		"j.claim_expires_at >= ?3", "j.claim_expires_at < ?3",
		"j.claim_expires_at < ?3 AND (j.attempts >= j.max_attempts OR j.expires_at <= ?3)"}, func(c *row.QueueCounts, n [3]row.Count) {
		c.Running, c.Lapsed, c.Expired = n[0], n[1].Minus(n[2]), c.Expired.Plus(n[2])
	}},
	{heldSpan, []row.Phase{row.PhaseHeld}, []string{"1"}, func(c *row.QueueCounts, n [3]row.Count) { c.Held = n[0] }},
	{deadSpan, []row.Phase{row.PhaseDead}, []string{"1"}, func(c *row.QueueCounts, n [3]row.Count) { c.Dead = n[0] }},
	{doneSpan, []row.Phase{row.PhaseDone}, []string{"1"}, func(c *row.QueueCounts, n [3]row.Count) { c.Done = n[0] }},
	// What a range of times has too much: these come after it.
	{overdueSpan, []row.Phase{row.PhaseReady, row.PhaseScheduled, row.PhaseExpired}, []string{
		"j.expires_at <= ?3 AND j.run_at <= ?3", "j.expires_at <= ?3 AND j.run_at > ?3"}, func(c *row.QueueCounts, n [3]row.Count) {
		c.Ready, c.Scheduled, c.Expired = c.Ready.Minus(n[0]), c.Scheduled.Minus(n[1]), c.Expired.Plus(n[0]).Plus(n[1])
	}},
	{spentSpan, []row.Phase{row.PhaseReady, row.PhaseExpired}, []string{
		"j.run_at <= ?3 AND (j.expires_at IS NULL OR j.expires_at > ?3)"}, func(c *row.QueueCounts, n [3]row.Count) {
		c.Ready, c.Expired = c.Ready.Minus(n[0]), c.Expired.Plus(n[0])
	}},
}

// countsQuery is one statement, and so of one moment: rows (which of allCounted, queue, numbers).
// Each number goes up to ?1.
func countsQuery(s *row.JobSelect) string {
	var parts []string
	for i, c := range allCounted {
		if !s.HasPhase(c.phases...) {
			continue
		}
		numbers := [3]string{"0", "0", "0"}
		for k, condition := range c.conditions {
			numbers[k] = `(SELECT count(*) FROM (SELECT 1 FROM ` + c.jobs() + ` AND ` + condition + ` LIMIT ?1 + 0))`
		}
		parts = append(parts, `SELECT * FROM (`+c.queues(s)+`
SELECT `+strconv.Itoa(i)+`, queue, `+strings.Join(numbers[:], ",\n  ")+` FROM `+c.of()+c.inUse()+`)`)
	}
	return strings.Join(parts, "\nUNION ALL\n")
}

// inUse is the condition that a row is not the end of a skip scan.
func (in span) inUse() string {
	if in.levels {
		return " WHERE p IS NOT NULL"
	}
	return " WHERE queue IS NOT NULL"
}

// Counts counts the jobs in the queues and phases of s, each number up to limit. A queue without such
// jobs is not in it. cost is about how many entries of indexes were read.
func (Jobs) Counts(ctx context.Context, q Querier, s row.JobSelect, limit int64) (counts map[string]row.QueueCounts, cost int64, err error) {
	counts = make(map[string]row.QueueCounts)
	query := countsQuery(&s)
	if query == "" {
		return counts, 0, nil
	}
	err = each(ctx, q, query, func(rows *sql.Rows) error {
		var which int
		var queue string
		var n [3]int64
		if err := rows.Scan(&which, &queue, &n[0], &n[1], &n[2]); err != nil {
			return err
		}
		var numbers [3]row.Count
		for i := range n {
			numbers[i] = row.Count{N: min(n[i], limit), More: n[i] > limit}
			cost += n[i]
		}
		cost += costOfSeeks
		c := counts[queue]
		allCounted[which].add(&c, numbers)
		counts[queue] = c
		return nil
	}, parameters(query, limit+1, nil, s.Now, nameList(s.Queues))...)
	return counts, cost, err
}

// costOfSeeks is that of a row of the counts, in entries of an index that are counted.
const costOfSeeks = 20
