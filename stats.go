package honker

import (
	"context"
	"strconv"
	"time"

	"github.com/honker-go/honker/internal/engine"
)

// Count is a number that may be a lower bound.
type Count struct {
	N    int64
	More bool // there are more than N; they were not counted
}

// String returns "1,234", or "10,000+" where there are more.
func (c Count) String() string {
	text := strconv.FormatInt(c.N, 10)
	first := 0
	if c.N < 0 {
		first = 1
	}
	for at := len(text) - 3; at > first; at -= 3 {
		text = text[:at] + "," + text[at:]
	}
	if c.More {
		text += "+"
	}
	return text
}

// QueueStats is what lies in a queue, by [Phase]. The counts are all of one moment, AsOf: no job
// is counted twice, and none that moved meanwhile is missing.
type QueueStats struct {
	Queue                                            string
	Ready, Scheduled, Running, Lapsed, Held, Expired Count
	Dead                                             Count

	// OldestReady is the earliest RunAt of the jobs that are ready, of any priority. The zero time:
	// none is. That it is long ago, rather than that many jobs wait, means that workers
	// are missing. Behind more than a thousand jobs of a priority that can run no more it is the
	// RunAt of the thousandth, so it is never later than the right one.
	OldestReady time.Time
	NextAt      time.Time // when the next job becomes ready by time alone, as [Queue.NextClaimAt]; zero: nothing is coming
	Pause       *Pause    // nil: the queue is not paused
	AsOf        time.Time // when this was counted
	Limits      Limits    // of the queue; Ready counts also those that they keep from starting
	Cancelled   int64     // jobs that were cancelled while they ran, and take a place of Limits until their handlers have returned
}

// Stats returns what lies in this queue; one that nothing was ever enqueued to is all zeros. It
// never waits for the writer. Counting reads an entry of an index for each job, each number up to
// Options.CountLimit; the rows themselves are read only of jobs that a claim or a sweep has to
// settle.
//
// Counts of fewer than 10,000 jobs are always new. Larger ones are taken again when a hundred times as
// long has passed as the last ones took, for all callers of this DB: until then Stats returns those,
// and AsOf says from when they are. OldestReady, NextAt and Pause are always new.
func (q *Queue[T]) Stats(ctx context.Context) (QueueStats, error) {
	stats, err := q.stats(ctx)
	return stats, fail("stats", q.name, err)
}

func (q *queue) stats(ctx context.Context) (QueueStats, error) {
	if q.err != nil {
		return QueueStats{}, q.err
	}
	rows, err := q.db.engine.Stats(ctx, q.name)
	if err != nil {
		return QueueStats{}, err
	}
	return statsOf(rows[0]), nil
}

func statsOf(row engine.QueueStats) QueueStats {
	return QueueStats{
		Queue:       row.Queue,
		Ready:       Count(row.Ready),
		Scheduled:   Count(row.Scheduled),
		Running:     Count(row.Running),
		Lapsed:      Count(row.Lapsed),
		Held:        Count(row.Held),
		Expired:     Count(row.Expired),
		Dead:        Count(row.Dead),
		OldestReady: engine.Instant(row.OldestReady),
		NextAt:      engine.Instant(row.NextAt),
		Pause:       pauseOf(row.Pause),
		AsOf:        row.AsOf,
		Limits:      limitsOf(row.Limits),
		Cancelled:   row.Cancelled,
	}
}
