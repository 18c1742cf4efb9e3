package dispatches

import (
	"context"
	"slices"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/rows"
)

// These statements scan the whole table. An index would slow down every job just to speed up a rare sweep.
const (
	whereOverSent = ` FROM _honkerx_dispatch_jobs AS j WHERE ended_ms < ?1
  AND NOT EXISTS (SELECT 1 FROM _honker_live WHERE id = j.run_id)`

	sqlOverSent = `SELECT job_id` + whereOverSent + ` LIMIT ?2 + 0`

	sqlDropSent = `DELETE` + whereOverSent + ` AND job_id IN (SELECT value FROM json_each(?2))`

	sqlDropTwins = `DELETE FROM _honkerx_dispatch_twins WHERE sent_id IN (SELECT value FROM json_each(?1))
  AND NOT EXISTS (SELECT 1 FROM _honkerx_dispatch_jobs WHERE job_id = sent_id)`

	sqlDropPresences = `DELETE FROM _honkerx_dispatch_presence WHERE expires_ms <= ?1`
)

// findSentOver returns up to limit jobs that ended before at.
func findSentOver(ctx context.Context, q row.Querier, _ row.Part, at time.Time, limit int) ([]int64, error) {
	if there, err := (Dispatches{}).exists(ctx, q); err != nil || !there {
		return nil, err
	}
	return rows.ReturnedIDs(ctx, q, sqlOverSent, 0, at.UnixMilli(), limit)
}

func dropSentOver(ctx context.Context, q row.Querier, _ row.Part, ids []int64, at time.Time, _ int) (row.Swept, error) {
	n, err := rows.Affected(ctx, q, sqlDropSent, at.UnixMilli(), rows.IDList(ids))
	if err == nil {
		_, err = q.ExecContext(ctx, sqlDropTwins, rows.IDList(ids))
	}
	return rows.Swept(n, err)
}

// These statements read the prefixes from both tables. A prefix is the part of a name before its fixed
// part.
const (
	sqlDispatchPrefixes = `SELECT substr(queue, 1, instr(queue, 'q:work:') - 1) FROM _honkerx_dispatch_jobs
UNION SELECT substr(key, 1, instr(key, 'meta:actor:inst:') - 1) FROM _honkerx_dispatch_presence`

	// sqlOldReplies uses the pending index. ?1 is the name of a reply queue without the job ID, and ?2 is the upper
	// bound of all such names. A reply to a job that package dispatch knows is kept with the job.
	sqlOldReplies = `SELECT id FROM _honker_live AS l INDEXED BY _honkerx_live_pending
WHERE state = 'pending' AND queue >= ?1 AND queue < ?2 AND created_at < ?3
  AND substr(queue, length(?1) + 1) GLOB '[0-9]*' AND substr(queue, length(?1) + 1) NOT GLOB '*[^0-9]*'
  AND NOT EXISTS (SELECT 1 FROM _honkerx_dispatch_jobs WHERE job_id = CAST(substr(l.queue, length(?1) + 1) AS INTEGER))
  AND NOT EXISTS (SELECT 1 FROM _honkerx_dispatch_twins WHERE job_id = CAST(substr(l.queue, length(?1) + 1) AS INTEGER))
LIMIT ?4 + 0`

	sqlDropReplies = `DELETE FROM _honker_live WHERE state = 'pending' AND id IN (SELECT value FROM json_each(?1))`
)

// dispatchPrefixParts returns a part for each key prefix in the file, including the default.
func dispatchPrefixParts(ctx context.Context, q row.Querier, _ time.Time) ([]row.Part, error) {
	if there, err := (Dispatches{}).exists(ctx, q); err != nil || !there {
		return nil, err
	}
	all, err := rows.Texts(ctx, q, sqlDispatchPrefixes)
	all = append(all, row.DispatchPrefix)
	slices.Sort(all)
	return rows.PartsOf(slices.Compact(all), err)
}

// findOldReplies returns up to limit replies that have been waiting in a prefix's reply queues since before
// at, except replies to jobs that package dispatch knows.
func findOldReplies(ctx context.Context, q row.Querier, part row.Part, at time.Time, limit int) (ids []int64, err error) {
	for _, room := range []string{row.DispatchReplyQueue, row.DispatchLegacyReplyQueue} {
		first := part.Name + room
		after := first[:len(first)-1] + ";" // the character after the colon
		some, err := rows.ReturnedIDs(ctx, q, sqlOldReplies, 0, first, after, at.Unix(), limit-len(ids))
		if err != nil {
			return nil, err
		}
		ids = append(ids, some...)
	}
	return ids, nil
}

// dropReplies deletes the replies in ids that are still pending.
func dropReplies(ctx context.Context, q row.Querier, _ row.Part, ids []int64, _ time.Time, _ int) (row.Swept, error) {
	return rows.Swept(rows.Affected(ctx, q, sqlDropReplies, rows.IDList(ids)))
}

// Each statement stops at the first matching row.
const (
	sqlStalePresence = `SELECT EXISTS (SELECT 1 FROM _honkerx_dispatch_presence WHERE expires_ms <= ?1)`

	sqlNeedsLife    = `SELECT EXISTS (SELECT 1 FROM _honkerx_dispatch_jobs)`
	sqlNeedsLegacy  = `SELECT EXISTS (SELECT 1 FROM _honkerx_dispatch_twins)`
	sqlNeedsReplies = `SELECT EXISTS (SELECT 1 FROM _honkerx_dispatch_jobs WHERE reply_queue IS NOT NULL OR reply_topic IS NOT NULL)`
)

// findActorsGone looks for expired actors and for triggers that no row needs anymore.
func findActorsGone(ctx context.Context, q row.Querier, _ row.Part, at time.Time, _ int) ([]int64, error) {
	d := Dispatches{}
	if there, err := d.exists(ctx, q); err != nil || !there {
		return nil, err
	}
	stale := false
	if _, err := rows.One(ctx, q, sqlStalePresence, []any{at.UnixMilli()}, &stale); err != nil || stale {
		return rows.Work(stale, err)
	}
	parts, err := d.unneeded(ctx, q)
	return rows.Work(len(parts) > 0, err)
}

func dropActorsGone(ctx context.Context, q row.Querier, _ row.Part, _ []int64, at time.Time, _ int) (row.Swept, error) {
	n, err := rows.Affected(ctx, q, sqlDropPresences, at.UnixMilli())
	if err == nil {
		err = Dispatches{}.dropUnneeded(ctx, q)
	}
	return rows.Swept(n, err)
}

// dispatchNeeds lists, for each part, the query that reports whether its triggers are needed.
var dispatchNeeds = []struct {
	part  row.DispatchPart
	query string
}{
	{row.DispatchLife, sqlNeedsLife}, {row.DispatchLegacy, sqlNeedsLegacy}, {row.DispatchReplies, sqlNeedsReplies},
}

// unneeded returns the parts whose triggers no row in the file needs anymore.
func (d Dispatches) unneeded(ctx context.Context, q row.Querier) (parts []row.DispatchPart, err error) {
	there, err := d.objects(ctx, q)
	if err != nil || !there[dispatchPresence] {
		return nil, err
	}
	for _, need := range dispatchNeeds {
		if !there[dispatchParts[need.part].last] {
			continue
		}
		needed := false
		if _, err := rows.One(ctx, q, need.query, nil, &needed); err != nil {
			return nil, err
		}
		if !needed {
			parts = append(parts, need.part)
		}
	}
	return parts, nil
}

// dropUnneeded drops unneeded triggers. It determines which these are once it holds the write lock.
func (d Dispatches) dropUnneeded(ctx context.Context, q row.Querier) error {
	if err := rows.TakeWriteLock(ctx, q); err != nil {
		return err
	}
	parts, err := d.unneeded(ctx, q)
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

// Sweeps of sent jobs, of unread replies and of expired actors.
var (
	SweepSent    = engine.Sweep{Find: findSentOver, Take: dropSentOver}
	SweepReplies = engine.Sweep{Of: "prefix", Parts: dispatchPrefixParts, Find: findOldReplies, Take: dropReplies}
	SweepActors  = engine.Sweep{Find: findActorsGone, Take: dropActorsGone}
)
