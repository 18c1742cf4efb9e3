package honker

import (
	"context"
	"strconv"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/store"
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

// QueueStats is what lies in a queue, by [Phase], at one moment: no job is counted twice, and
// none that moved meanwhile is missing.
type QueueStats struct {
	Queue                                            string
	Ready, Scheduled, Running, Lapsed, Held, Expired Count
	Dead                                             Count

	// OldestReady is the earliest RunAt of the jobs that are ready, of any priority. The zero time:
	// none is. That it is long ago, rather than that many jobs wait, means that workers
	// are missing.
	OldestReady time.Time
	NextAt      time.Time // when the next job becomes ready by time alone, as [Queue.NextClaimAt]; zero: nothing is coming
	AsOf        time.Time // when this was counted
}

// Stats returns what lies in this queue; one that nothing was ever enqueued to is all zeros. It
// never waits for the writer. Counting reads an entry of an index for each job; the rows
// themselves are read only of jobs that a claim or a sweep has to settle.
func (q *Queue[T]) Stats(ctx context.Context) (QueueStats, error) {
	stats, err := q.stats(ctx)
	return stats, fail("stats", q.name, err)
}

func (q *queue) stats(ctx context.Context) (stats QueueStats, err error) {
	if q.err != nil {
		return QueueStats{}, q.err
	}
	err = q.db.engine.Read(ctx, func(ctx context.Context, r engine.Querier) error {
		now := time.Now()
		row, err := q.db.jobs.Stats(ctx, r, q.name, now.Unix())
		stats = statsOf(row, now)
		return err
	})
	if err != nil {
		return QueueStats{}, err
	}
	return stats, nil
}

func statsOf(row store.QueueStats, now time.Time) QueueStats {
	return QueueStats{
		Queue:       row.Queue,
		Ready:       Count{N: row.Ready},
		Scheduled:   Count{N: row.Scheduled},
		Running:     Count{N: row.Running},
		Lapsed:      Count{N: row.Lapsed},
		Held:        Count{N: row.Held},
		Expired:     Count{N: row.Expired},
		Dead:        Count{N: row.Dead},
		OldestReady: engine.Instant(row.OldestReady),
		NextAt:      engine.Instant(row.NextAt),
		AsOf:        now,
	}
}
