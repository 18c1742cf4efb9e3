package store

import (
	"context"
	"slices"

	"github.com/honker-go/honker/internal/row"
)

// These statements scan the whole table. An index would slow down every job for the benefit of a rare
// sweep.
const (
	whereOverSent = ` FROM _honkerx_dispatch_jobs AS j WHERE ended_ms < ?1
  AND NOT EXISTS (SELECT 1 FROM _honker_live WHERE id = j.run_id)`

	sqlOverSent = `SELECT job_id` + whereOverSent + ` LIMIT ?2 + 0`

	sqlDropSent = `DELETE` + whereOverSent + ` AND job_id IN (SELECT value FROM json_each(?2))`

	sqlDropTwins = `DELETE FROM _honkerx_dispatch_twins WHERE sent_id IN (SELECT value FROM json_each(?1))
  AND NOT EXISTS (SELECT 1 FROM _honkerx_dispatch_jobs WHERE job_id = sent_id)`

	sqlDropPresences = `DELETE FROM _honkerx_dispatch_presence WHERE expires_ms <= ?1`
)

// Over returns up to limit jobs that ended before beforeMS.
func (Dispatches) Over(ctx context.Context, q row.Querier, beforeMS int64, limit int) ([]int64, error) {
	return returnedIDs(ctx, q, sqlOverSent, 0, beforeMS, limit)
}

// Drop deletes the rows of the jobs among ids that Over would still return, and returns their number.
func (Dispatches) Drop(ctx context.Context, q row.Querier, beforeMS int64, ids []int64) (int, error) {
	n, err := affected(ctx, q, sqlDropSent, beforeMS, idList(ids))
	if err != nil {
		return 0, err
	}
	_, err = q.ExecContext(ctx, sqlDropTwins, idList(ids))
	return n, err
}

// DropPresences deletes the rows of actors that have expired and returns their number.
func (Dispatches) DropPresences(ctx context.Context, q row.Querier, nowMS int64) (int, error) {
	return affected(ctx, q, sqlDropPresences, nowMS)
}

// The prefixes are read from both tables. A prefix is the part of a name before its fixed part.
const (
	sqlDispatchPrefixes = `SELECT substr(queue, 1, instr(queue, 'q:work:') - 1) FROM _honkerx_dispatch_jobs
UNION SELECT substr(key, 1, instr(key, 'meta:actor:inst:') - 1) FROM _honkerx_dispatch_presence`

	// Uses the pending index. ?1 is the name of a reply queue without the job id, and ?2 is the upper bound
	// of all such names. A reply to a job that dispatch knows is kept with the job.
	sqlOldReplies = `SELECT id FROM _honker_live AS l INDEXED BY _honkerx_live_pending
WHERE state = 'pending' AND queue >= ?1 AND queue < ?2 AND created_at < ?3
  AND substr(queue, length(?1) + 1) GLOB '[0-9]*' AND substr(queue, length(?1) + 1) NOT GLOB '*[^0-9]*'
  AND NOT EXISTS (SELECT 1 FROM _honkerx_dispatch_jobs WHERE job_id = CAST(substr(l.queue, length(?1) + 1) AS INTEGER))
  AND NOT EXISTS (SELECT 1 FROM _honkerx_dispatch_twins WHERE job_id = CAST(substr(l.queue, length(?1) + 1) AS INTEGER))
LIMIT ?4 + 0`

	sqlDropReplies = `DELETE FROM _honker_live WHERE state = 'pending' AND id IN (SELECT value FROM json_each(?1))`
)

// Prefixes returns the sorted prefixes of the keys in the file, including the default.
func (Dispatches) Prefixes(ctx context.Context, q row.Querier) ([]string, error) {
	all, err := texts(ctx, q, sqlDispatchPrefixes)
	all = append(all, row.DispatchPrefix)
	slices.Sort(all)
	return slices.Compact(all), err
}

// OldReplies returns up to limit replies that have waited in reply queues of a prefix since before the
// second before, without the replies to jobs that dispatch knows.
func (Dispatches) OldReplies(ctx context.Context, q row.Querier, prefix string, before int64, limit int) (ids []int64, err error) {
	for _, room := range []string{dispatchReply, dispatchLegacyReply} {
		first := prefix + room
		after := first[:len(first)-1] + ";" // the character after the colon
		some, err := returnedIDs(ctx, q, sqlOldReplies, 0, first, after, before, limit-len(ids))
		if err != nil {
			return nil, err
		}
		ids = append(ids, some...)
	}
	return ids, nil
}

// DropReplies deletes the replies among ids that are still pending, and returns their number.
func (Dispatches) DropReplies(ctx context.Context, q row.Querier, ids []int64) (int, error) {
	return affected(ctx, q, sqlDropReplies, idList(ids))
}

// Each statement stops at the first matching row.
const (
	sqlStalePresence = `SELECT EXISTS (SELECT 1 FROM _honkerx_dispatch_presence WHERE expires_ms <= ?1)`

	sqlNeedsLife    = `SELECT EXISTS (SELECT 1 FROM _honkerx_dispatch_jobs)`
	sqlNeedsLegacy  = `SELECT EXISTS (SELECT 1 FROM _honkerx_dispatch_twins)`
	sqlNeedsReplies = `SELECT EXISTS (SELECT 1 FROM _honkerx_dispatch_jobs WHERE reply_queue IS NOT NULL OR reply_topic IS NOT NULL)`
)

// Stale reports whether DropPresences would delete a row.
func (Dispatches) Stale(ctx context.Context, q row.Querier, nowMS int64) (some bool, err error) {
	_, err = one(ctx, q, sqlStalePresence, []any{nowMS}, &some)
	return some, err
}

// dispatchNeeds lists, for each part, the query that reports whether its triggers are needed.
var dispatchNeeds = []struct {
	part  row.DispatchPart
	query string
}{
	{row.DispatchLife, sqlNeedsLife}, {row.DispatchLegacy, sqlNeedsLegacy}, {row.DispatchReplies, sqlNeedsReplies},
}

// Unneeded returns the parts whose triggers no row in the file needs any more.
func (d Dispatches) Unneeded(ctx context.Context, q row.Querier) (parts []row.DispatchPart, err error) {
	there, err := d.objects(ctx, q)
	if err != nil || !there[dispatchPresence] {
		return nil, err
	}
	for _, need := range dispatchNeeds {
		if !there[dispatchParts[need.part].last] {
			continue
		}
		needed := false
		if _, err := one(ctx, q, need.query, nil, &needed); err != nil {
			return nil, err
		}
		if !needed {
			parts = append(parts, need.part)
		}
	}
	return parts, nil
}

// DropUnneeded drops the triggers that are unneeded once it holds the write lock.
func (d Dispatches) DropUnneeded(ctx context.Context, q row.Querier) error {
	if err := TakeWriteLock(ctx, q); err != nil {
		return err
	}
	parts, err := d.Unneeded(ctx, q)
	if err != nil {
		return err
	}
	for _, part := range parts {
		for _, trigger := range dispatchParts[part].triggers {
			if _, err := q.ExecContext(ctx, `DROP TRIGGER IF EXISTS `+trigger); err != nil {
				return err
			}
		}
	}
	return nil
}
