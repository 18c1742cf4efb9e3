package main

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
)

// usedFor is the period in which a queue without jobs counts as used.
const usedFor = 7 * 24 * time.Hour

// noteUnknown prints a note if a queue was never used, because its name may be misspelled. The command does its work
// nevertheless, because a queue begins to exist with its first job.
func (a *app) noteUnknown(ctx context.Context, db *honker.DB, queue string) {
	if a.quiet || queue == "" || isUsed(ctx, db, queue) || a.noteNear(ctx, db, queue) {
		return
	}
	if others, err := admin.Traffic(ctx, db, admin.OtherQueues, time.Now().Add(-usedFor)); err == nil && len(others) == 0 {
		a.note("no such queue yet: %s; see %s", queue, a.command("queues"))
	}
}

// noteMisspelled is like noteUnknown for a command that may begin to use a queue. It is silent unless the name resembles
// the name of another queue.
func (a *app) noteMisspelled(ctx context.Context, db *honker.DB, queue string) {
	if !a.quiet && queue != "" && !isUsed(ctx, db, queue) {
		a.noteNear(ctx, db, queue)
	}
}

// noteNear names the queues that queue resembles. It returns false if there are none, and if no schedule knows queue.
func (a *app) noteNear(ctx context.Context, db *honker.DB, queue string) bool {
	names, _ := queueNames(ctx, db) // after an error, these are the names to compare with
	if slices.Contains(names, queue) {
		return true
	}
	similar := near(queue, names)
	if len(similar) > 0 {
		a.note("no such queue yet: %s; did you mean %s?", queue, strings.Join(similar, " or "))
	}
	return len(similar) > 0
}

// isUsed reports whether the database has a trace of the queue. It returns true after an error, which the command itself
// will meet.
func isUsed(ctx context.Context, db *honker.DB, queue string) bool {
	stats, err := byName(db, queue).Stats(ctx)
	if err != nil || !vacant(stats) || stats.Limits != (honker.Limits{}) {
		return true
	}
	minutes, err := admin.Traffic(ctx, db, queue, time.Now().Add(-usedFor))
	if err != nil || len(minutes) > 0 {
		return true
	}
	workers, err := admin.Workers(ctx, db)
	return err != nil || slices.ContainsFunc(workers, func(w admin.WorkerInfo) bool { return w.Queue == queue })
}

// queueNames returns the names of the queues with jobs, a pause, workers or schedules.
func queueNames(ctx context.Context, db *honker.DB) (names []string, err error) {
	queues, noQueues := admin.Queues(ctx, db)
	for _, q := range queues {
		names = append(names, q.Queue)
	}
	workers, noWorkers := admin.Workers(ctx, db)
	for _, w := range workers {
		names = append(names, w.Queue)
	}
	schedules, noSchedules := db.Scheduler().List(ctx)
	for _, s := range schedules {
		names = append(names, s.Queue)
	}
	slices.Sort(names)
	return slices.Compact(names), errors.Join(noQueues, noWorkers, noSchedules)
}

// near returns up to three names that resemble name, the most similar first.
func near(name string, names []string) []string {
	const most = 3
	far := max(1, len(name)/3)
	distance := func(other string) int { return edits(strings.ToLower(name), strings.ToLower(other)) }
	names = slices.DeleteFunc(slices.Clone(names), func(other string) bool { return distance(other) > far })
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(distance(a), distance(b)) })
	for i := range names[:min(len(names), most)] {
		names[i] = shellWord(names[i])
	}
	return names[:min(len(names), most)]
}

// edits returns the number of characters to insert, delete, replace or swap with their neighbors to turn a into b.
func edits(a, b string) int {
	x, y := []rune(a), []rune(b)
	above, last := make([]int, len(y)+1), make([]int, len(y)+1)
	row := make([]int, len(y)+1)
	for j := range row {
		row[j] = j
	}
	for i := range x {
		above, last, row = last, row, above
		row[0] = i + 1
		for j := range y {
			replaced := last[j]
			if x[i] != y[j] {
				replaced++
			}
			row[j+1] = min(replaced, last[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && x[i] == y[j-1] && x[i-1] == y[j] {
				row[j+1] = min(row[j+1], above[j-1]+1)
			}
		}
	}
	return row[len(y)]
}
