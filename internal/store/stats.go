package store

import (
	"context"
	"database/sql"
	"strconv"
	"strings"
)

// QueueStats is what lies in a queue. A time that there is not is 0.
type QueueStats struct {
	Queue string
	QueueCounts
	OldestReady, NextAt int64
	Pause               *Pause
	Limits              QueueLimits
	Cancelled           int64 // that still take a place, see Limits
}

// QueueCounts are the jobs of a queue by phase.
type QueueCounts struct {
	Ready, Scheduled, Running, Lapsed, Held, Expired, Dead, Done Count
}

// Count is a number of jobs, or a lower bound of it.
type Count struct {
	N    int64
	More bool
}

// plus adds what another one has.
func (c Count) plus(d Count) Count { return Count{c.N + d.N, c.More || d.More} }

// minus takes away what is part of it. A bound takes away what it may stand for.
func (c Count) minus(d Count) Count {
	if d.More {
		return Count{More: true}
	}
	return Count{max(0, c.N-d.N), c.More}
}

// Stats is what lies in a queue, of what was counted and what is at its head.
func (h QueueHead) Stats(c QueueCounts) QueueStats {
	s := QueueStats{Queue: h.Queue, QueueCounts: c, OldestReady: h.Ready, NextAt: h.NextAt, Pause: h.pause, Limits: h.limits, Cancelled: h.cancelled}
	if behind := h.Behind; behind != 0 && c.Ready != (Count{}) && (s.OldestReady == 0 || behind < s.OldestReady) {
		s.OldestReady = behind
	}
	return s
}

// Sum is the number of jobs in some phases.
func (c QueueCounts) Sum(s JobSelect) (sum Count) {
	for _, of := range []struct {
		phase Phase
		n     Count
	}{{PhaseReady, c.Ready}, {PhaseScheduled, c.Scheduled}, {PhaseRunning, c.Running}, {PhaseLapsed, c.Lapsed},
		{PhaseHeld, c.Held}, {PhaseExpired, c.Expired}, {PhaseDead, c.Dead}, {PhaseDone, c.Done}} {
		if s.hasPhase(of.phase) {
			sum = sum.plus(of.n)
		}
	}
	return sum
}

// StatsPhases are those of a look at queues.
var StatsPhases = []Phase{PhaseReady, PhaseScheduled, PhaseRunning, PhaseLapsed, PhaseHeld, PhaseExpired, PhaseDead}

// counted is a statement's part that counts jobs of a span by up to three conditions, a row for each
// queue or priority, and where they belong. Each count reads an entry of an index for each job, and
// the rows only of jobs with a claim that has lapsed, a deadline that has passed or no attempt left.
type counted struct {
	span
	phases     []Phase // that need it
	conditions []string
	add        func(c *QueueCounts, n [3]Count)
}

var allCounted = []counted{
	{waitingSpan, []Phase{PhaseReady, PhaseScheduled}, []string{"j.run_at <= ?3", "j.run_at > ?3"}, func(c *QueueCounts, n [3]Count) {
		c.Ready, c.Scheduled = c.Ready.plus(n[0]), c.Scheduled.plus(n[1])
	}},
	{claimedSpan, []Phase{PhaseRunning, PhaseLapsed, PhaseExpired}, []string{
		"j.claim_expires_at >= ?3", "j.claim_expires_at < ?3",
		"j.claim_expires_at < ?3 AND (j.attempts >= j.max_attempts OR j.expires_at <= ?3)"}, func(c *QueueCounts, n [3]Count) {
		c.Running, c.Lapsed, c.Expired = n[0], n[1].minus(n[2]), c.Expired.plus(n[2])
	}},
	{heldSpan, []Phase{PhaseHeld}, []string{"1"}, func(c *QueueCounts, n [3]Count) { c.Held = n[0] }},
	{deadSpan, []Phase{PhaseDead}, []string{"1"}, func(c *QueueCounts, n [3]Count) { c.Dead = n[0] }},
	{doneSpan, []Phase{PhaseDone}, []string{"1"}, func(c *QueueCounts, n [3]Count) { c.Done = n[0] }},
	// What a range of times has too much: these come after it.
	{overdueSpan, []Phase{PhaseReady, PhaseScheduled, PhaseExpired}, []string{
		"j.expires_at <= ?3 AND j.run_at <= ?3", "j.expires_at <= ?3 AND j.run_at > ?3"}, func(c *QueueCounts, n [3]Count) {
		c.Ready, c.Scheduled, c.Expired = c.Ready.minus(n[0]), c.Scheduled.minus(n[1]), c.Expired.plus(n[0]).plus(n[1])
	}},
	{spentSpan, []Phase{PhaseReady, PhaseExpired}, []string{
		"j.run_at <= ?3 AND (j.expires_at IS NULL OR j.expires_at > ?3)"}, func(c *QueueCounts, n [3]Count) {
		c.Ready, c.Expired = c.Ready.minus(n[0]), c.Expired.plus(n[0])
	}},
}

// countsQuery is one statement, and so of one moment: rows (which of allCounted, queue, numbers).
// Each number goes up to ?1.
func countsQuery(s *JobSelect) string {
	var parts []string
	for i, c := range allCounted {
		if !s.hasPhase(c.phases...) {
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
func (Jobs) Counts(ctx context.Context, q Querier, s JobSelect, limit int64) (counts map[string]QueueCounts, cost int64, err error) {
	counts = make(map[string]QueueCounts)
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
		var numbers [3]Count
		for i := range n {
			numbers[i] = Count{min(n[i], limit), n[i] > limit}
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
