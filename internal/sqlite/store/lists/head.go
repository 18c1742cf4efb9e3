package lists

import (
	"context"
	"database/sql"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/rows"
)

// headWalk bounds the jobs skipped at the head of an index because they cannot run. If there are more, the
// last skipped job's time is used as a lower bound.
const headWalk = 1000

// head returns two expressions. The first is the time of the first job that can run, if it is among the
// first headWalk jobs. The second is the time of the last of these jobs.
func head(in indexRange, time, condition string) (first, behind string) {
	from := in.jobs() + ` AND ` + condition + ` ORDER BY j.` + time
	return `(SELECT t FROM (SELECT j.` + time + ` AS t, j.attempts < j.max_attempts AND (j.expires_at IS NULL OR j.expires_at > ?3) AS ok
      FROM ` + from + ` LIMIT ` + strconv.Itoa(headWalk) + `) WHERE ok LIMIT 1)`,
		`(SELECT j.` + time + ` FROM ` + from + ` LIMIT 1 OFFSET ` + strconv.Itoa(headWalk-1) + `)`
}

// headsQuery returns the statement that yields rows of (kind, queue, times). It reads only the heads of
// indexes, so its cost does not depend on queue lengths. The second time of a pair is computed only if the
// first is NULL.
func headsQuery(s *selection) string {
	ready, behindReady := head(waitingRange, "run_at", "j.run_at <= ?3")
	next, behindNext := head(waitingRange, "run_at", "j.run_at > ?3")
	lapse, behindLapse := head(claimedRange, "claim_expires_at", "j.claim_expires_at >= ?3")
	named := func(in indexRange) string {
		return `SELECT * FROM (` + in.queues(s) + ` SELECT 'named', queue, NULL, NULL, NULL, NULL FROM n WHERE queue IS NOT NULL)`
	}
	parts := []string{
		`SELECT * FROM (` + waitingRange.queues(s) + `,
  h(queue, p, ready, next) AS MATERIALIZED (SELECT queue, p,
    ` + ready + `,
    ` + next + ` FROM lv WHERE p IS NOT NULL)
SELECT 'waiting', queue, ready, iif(ready IS NULL, ` + strings.ReplaceAll(behindReady, "lv.", "h.") + `, NULL),
  next, iif(next IS NULL, ` + strings.ReplaceAll(behindNext, "lv.", "h.") + `, NULL) FROM h)`,
		`SELECT * FROM (` + claimedRange.queues(s) + `,
  h(queue, lapse) AS MATERIALIZED (SELECT queue,
    ` + lapse + ` FROM n WHERE queue IS NOT NULL)
SELECT 'claimed', queue, lapse, iif(lapse IS NULL, ` + strings.ReplaceAll(behindLapse, "n.queue", "h.queue") + `, NULL), NULL, NULL FROM h)`,
	}
	if len(s.Queues) == 0 {
		parts = append(parts, named(heldRange), named(deadRange))
	}
	return strings.Join(parts, "\nUNION ALL\n")
}

// readHead collects a queue's rows.
type readHead struct{ ready, behind, due, lapse rows.Number }

// Heads returns a head for each of queues, sorted by name. If queues is empty, it returns a head for every
// queue that has jobs.
func (Lists) Heads(ctx context.Context, q row.Querier, queues []string, now time.Time) ([]row.QueueHead, error) {
	byName := make(map[string]*readHead)
	query := sqlAllHeads
	if len(queues) > 0 {
		query = sqlHeads
	}
	err := rows.Each(ctx, q, query, func(r *sql.Rows) error {
		var kind, queue string
		var t [4]rows.Number
		if err := r.Scan(&kind, &queue, &t[0], &t[1], &t[2], &t[3]); err != nil {
			return err
		}
		if byName[queue] == nil {
			byName[queue] = new(readHead)
		}
		byName[queue].add(kind, t)
		return nil
	}, parameters(query, nil, nil, now.Unix(), rows.NameList(queues))...)
	heads := make([]row.QueueHead, 0, len(byName))
	for queue, h := range byName {
		heads = append(heads, row.QueueHead{
			Queue: queue, Ready: row.Instant(int64(h.ready)), Behind: row.Instant(int64(h.behind)), NextAt: row.Instant(rows.NextClaim(h.due, h.lapse)),
		})
	}
	slices.SortFunc(heads, func(a, b row.QueueHead) int { return strings.Compare(a.Queue, b.Queue) })
	return heads, err
}

// add merges a result row into h.
func (h *readHead) add(kind string, t [4]rows.Number) {
	switch kind {
	case "waiting": // a row for each priority
		h.ready = rows.Earlier(h.ready, t[0])
		h.behind = rows.Earlier(h.behind, t[1])
		h.due = rows.Earlier(h.due, rows.Earlier(t[2], t[3]))
	case "claimed":
		h.lapse = rows.Earlier(t[0], t[1])
	}
}

var sqlHeads, sqlAllHeads = headsQuery(&selection{JobSelect: row.JobSelect{Queues: []string{""}}}), headsQuery(&selection{})
