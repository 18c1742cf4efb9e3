package lists

import (
	"context"
	"database/sql"
	"strconv"
	"strings"
	"time"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/rows"
)

// counted is the part of a statement that counts the jobs in a range by up to three conditions, and
// the function that adds the counts to the result. It yields a row per queue, or per queue and
// priority. Counting reads an index entry per job. It reads the rows themselves only for jobs with
// a lapsed claim, a past deadline or no attempts left.
type counted struct {
	indexRange
	phases     []row.Phase // phases whose counts use this part
	conditions []string
	add        func(c *row.QueueCounts, n [3]row.Count)
}

var allCounted = []counted{
	{waitingRange, []row.Phase{row.PhaseReady, row.PhaseScheduled}, []string{"j.run_at <= ?3", "j.run_at > ?3"}, func(c *row.QueueCounts, n [3]row.Count) {
		c.Ready, c.Scheduled = c.Ready.Plus(n[0]), c.Scheduled.Plus(n[1])
	}},
	{claimedRange, []row.Phase{row.PhaseRunning, row.PhaseLapsed, row.PhaseExpired}, []string{
		"j.claim_expires_at >= ?3", "j.claim_expires_at < ?3",
		"j.claim_expires_at < ?3 AND (j.attempts >= j.max_attempts OR j.expires_at <= ?3)"}, func(c *row.QueueCounts, n [3]row.Count) {
		c.Running, c.Lapsed, c.Expired = n[0], n[1].Minus(n[2]), c.Expired.Plus(n[2])
	}},
	{heldRange, []row.Phase{row.PhaseHeld}, []string{"1"}, func(c *row.QueueCounts, n [3]row.Count) { c.Held = n[0] }},
	{deadRange, []row.Phase{row.PhaseDead}, []string{"1"}, func(c *row.QueueCounts, n [3]row.Count) { c.Dead = n[0] }},
	{doneRange, []row.Phase{row.PhaseDone}, []string{"1"}, func(c *row.QueueCounts, n [3]row.Count) { c.Done = n[0] }},
	// These rows are within the time ranges above and are subtracted, so they must come after them.
	{overdueRange, []row.Phase{row.PhaseReady, row.PhaseScheduled, row.PhaseExpired}, []string{
		"j.expires_at <= ?3 AND j.run_at <= ?3", "j.expires_at <= ?3 AND j.run_at > ?3"}, func(c *row.QueueCounts, n [3]row.Count) {
		c.Ready, c.Scheduled, c.Expired = c.Ready.Minus(n[0]), c.Scheduled.Minus(n[1]), c.Expired.Plus(n[0]).Plus(n[1])
	}},
	{spentRange, []row.Phase{row.PhaseReady, row.PhaseExpired}, []string{
		"j.run_at <= ?3 AND (j.expires_at IS NULL OR j.expires_at > ?3)"}, func(c *row.QueueCounts, n [3]row.Count) {
		c.Ready, c.Expired = c.Ready.Minus(n[0]), c.Expired.Plus(n[0])
	}},
}

// countsQuery returns a single statement, so that all counts reflect the same moment. Its rows are
// (index in allCounted, queue, numbers). Each number stops at ?1.
func countsQuery(s *selection) string {
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

// inUse returns a condition that excludes the NULL at the end of a skip scan.
func (in indexRange) inUse() string {
	if in.levels {
		return " WHERE p IS NOT NULL"
	}
	return " WHERE queue IS NOT NULL"
}

// Counts returns the number of jobs by queue in the queues and phases of s. Each number stops at
// limit. Queues without such jobs are left out. cost is the approximate number of index entries
// read.
func (Lists) Counts(ctx context.Context, q row.Querier, in row.JobSelect, limit int64, now time.Time) (counts map[string]row.QueueCounts, cost int64, err error) {
	s := &selection{in, now.Unix()}
	counts = make(map[string]row.QueueCounts)
	query := countsQuery(s)
	if query == "" {
		return counts, 0, nil
	}
	err = rows.Each(ctx, q, query, func(r *sql.Rows) error {
		var which int
		var queue string
		var n [3]int64
		if err := r.Scan(&which, &queue, &n[0], &n[1], &n[2]); err != nil {
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
	}, parameters(query, limit+1, nil, s.now, rows.NameList(s.Queues))...)
	return counts, cost, err
}

// costOfSeeks is the cost, in index entries, of the seeks for a row of counts.
const costOfSeeks = 20
