package store

import (
	"context"
	"slices"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// Sweeps returns the sweeps of a SQLite file.
func Sweeps() engine.Sweeps {
	return engine.Sweeps{
		Overdue:    engine.Sweep{Of: "queue", Parts: liveQueues, Find: findOverdue, Take: settleOverdue},
		Expired:    engine.Sweep{Of: "queue", Parts: liveQueues, Find: findExpired, Take: deadLetterExpired},
		Keys:       rowSweep(sqlKeysOver, sqlDropKeysOver, time.Time.UnixMilli),
		Pauses:     engine.Sweep{Find: findPausesOver, Take: endPausesOver},
		Places:     rowSweep(sqlOverPlaces, sqlDropPlaces, time.Time.Unix),
		Fits:       engine.Sweep{Of: "queue", Parts: fittingQueues, Find: findFitting, Take: fitSome},
		Claims:     engine.Sweep{Find: findLeftClaims, Take: dropLeftClaims},
		Done:       engine.Sweep{Of: "queue", Parts: KeptDone.parts, Find: KeptDone.find, Take: KeptDone.take},
		Dead:       engine.Sweep{Of: "queue", Parts: KeptDead.parts, Find: KeptDead.find, Take: KeptDead.take},
		Results:    rowSweep(sqlOverResults, sqlDropResults, time.Time.Unix),
		Batches:    rowSweep(sqlOverBatches, sqlDropBatches, time.Time.Unix),
		Sent:       engine.Sweep{Find: findSentOver, Take: dropSentOver},
		Replies:    engine.Sweep{Of: "prefix", Parts: dispatchPrefixParts, Find: findOldReplies, Take: dropReplies},
		Actors:     engine.Sweep{Find: findActorsGone, Take: dropActorsGone},
		Received:   engine.Sweep{Find: findReceivedOver, Take: dropReceivedOver},
		Minutes:    engine.Sweep{Find: findOldMinutes, Take: trimOldMinutes},
		Windows:    rowSweep(sqlOverWindows, sqlDropWindows, time.Time.Unix),
		OldWindows: rowSweep(sqlOldWindows, sqlDropOld, time.Time.Unix),
		Messages:   rowSweep(sqlOldMessages, sqlDropMessages, time.Time.Unix),
		Surplus:    surplusMessages,
	}
}

// rowSweep returns a sweep of the rows that find selects and drop deletes. Both compare a column with a time
// in the given unit.
func rowSweep(find, drop string, unit func(time.Time) int64) engine.Sweep {
	return engine.Sweep{
		Find: func(ctx context.Context, q row.Querier, _ row.Part, at time.Time, limit int) ([]int64, error) {
			return returnedIDs(ctx, q, find, 0, unit(at), limit)
		},
		Take: func(ctx context.Context, q row.Querier, _ row.Part, ids []int64, at time.Time, _ int) (row.Swept, error) {
			return swept(affected(ctx, q, drop, unit(at), idList(ids)))
		},
	}
}

func swept(n int, err error) (row.Swept, error) { return row.Swept{N: n}, err }

// work returns a number that stands for some work, or no number. It is for a sweep whose Take finds its rows
// itself.
func work(some bool, err error) ([]int64, error) {
	if !some || err != nil {
		return nil, err
	}
	return []int64{1}, nil
}

// partsOf returns a part for each name.
func partsOf(names []string, err error) ([]row.Part, error) {
	parts := make([]row.Part, len(names))
	for i, name := range names {
		parts[i].Name = name
	}
	return parts, err
}

// liveQueues returns the queues that have live jobs.
func liveQueues(ctx context.Context, q row.Querier, _ time.Time) ([]row.Part, error) {
	return partsOf(Jobs{}.Queues(ctx, q))
}

func findOverdue(ctx context.Context, q row.Querier, part row.Part, at time.Time, _ int) ([]int64, error) {
	return work(Jobs{}.Overdue(ctx, q, part.Name, at.Unix()))
}

func settleOverdue(ctx context.Context, q row.Querier, part row.Part, _ []int64, at time.Time, _ int) (row.Swept, error) {
	dead, err := Jobs{}.SettleOverdue(ctx, q, part.Name, at.Unix())
	return row.Swept{N: len(dead), Dead: dead, More: true}, err
}

func findExpired(ctx context.Context, q row.Querier, part row.Part, at time.Time, limit int) ([]int64, error) {
	return returnedIDs(ctx, q, sqlExpired, 0, part.Name, at.Unix(), limit)
}

func deadLetterExpired(ctx context.Context, q row.Querier, _ row.Part, ids []int64, at time.Time, _ int) (row.Swept, error) {
	dead, err := toDead(ctx, q, sqlDeadLetterExpiredIDs, idList(ids), at.Unix())
	return row.Swept{N: len(dead), Dead: dead}, err
}

func fittingQueues(ctx context.Context, q row.Querier, _ time.Time) ([]row.Part, error) {
	return partsOf(texts(ctx, q, sqlAllFitting))
}

func findFitting(ctx context.Context, q row.Querier, part row.Part, _ time.Time, _ int) ([]int64, error) {
	all, err := texts(ctx, q, sqlAllFitting)
	return work(slices.Contains(all, part.Name), err)
}

func fitSome(ctx context.Context, q row.Querier, part row.Part, _ []int64, at time.Time, limit int) (row.Swept, error) {
	more, err := Limits{}.FitSome(ctx, q, part.Name, limit, at.Unix())
	return row.Swept{More: more}, err
}

func findPausesOver(ctx context.Context, q row.Querier, _ row.Part, at time.Time, _ int) ([]int64, error) {
	return work(Pauses{}.Over(ctx, q, at.Unix()))
}

func endPausesOver(ctx context.Context, q row.Querier, _ row.Part, _ []int64, at time.Time, _ int) (row.Swept, error) {
	return swept(Pauses{}.EndOver(ctx, q, at.Unix()))
}

func findLeftClaims(ctx context.Context, q row.Querier, _ row.Part, _ time.Time, limit int) ([]int64, error) {
	groups, err := returnedIDs(ctx, q, sqlClaimsLeft, 0)
	return groups[:min(len(groups), limit)], err
}

// dropLeftClaims deletes up to limit claims of deleted groups.
func dropLeftClaims(ctx context.Context, q row.Querier, _ row.Part, groups []int64, _ time.Time, limit int) (row.Swept, error) {
	n := 0
	for _, group := range groups {
		dropped, err := affected(ctx, q, sqlDropGroupClaims, group, limit-n)
		if n += dropped; err != nil || n == limit {
			return row.Swept{N: n, More: true}, err
		}
	}
	return row.Swept{N: n}, nil
}

func findOldMinutes(ctx context.Context, q row.Querier, _ row.Part, at time.Time, _ int) ([]int64, error) {
	return work(Minutes{}.Old(ctx, q, at.Unix()/60))
}

// trimmedMinutes is the number of minutes deleted in a transaction. A minute has up to a hundred rows.
const trimmedMinutes = 30

func trimOldMinutes(ctx context.Context, q row.Querier, _ row.Part, _ []int64, at time.Time, _ int) (row.Swept, error) {
	n, err := Minutes{}.Trim(ctx, q, at.Unix()/60, trimmedMinutes)
	return row.Swept{N: n, More: n > 0}, err
}

// surplusMessages returns the sweep of the messages beyond the newest keep messages of all channels. Take needs
// no second check: a surplus message stays surplus, and ids are never reused.
func surplusMessages(keep int) engine.Sweep {
	return engine.Sweep{
		Find: func(ctx context.Context, q row.Querier, _ row.Part, _ time.Time, limit int) ([]int64, error) {
			return Notifications{}.Surplus(ctx, q, keep, limit)
		},
		Take: func(ctx context.Context, q row.Querier, _ row.Part, ids []int64, _ time.Time, _ int) (row.Swept, error) {
			return swept(Notifications{}.Drop(ctx, q, ids))
		},
	}
}
