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
	More bool // there are more than N, but they were not counted
}

// String formats the count as "1,234", or as "10,000+" if More is set.
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

// QueueStats contains the number of a queue's jobs in each [Phase]. All counts are taken at the same moment, AsOf, so
// no job is counted twice, and no job is missed because it changes phase.
type QueueStats struct {
	Queue                                            string
	Ready, Scheduled, Running, Lapsed, Held, Expired Count
	Dead                                             Count

	// OldestReady is the earliest RunAt of the ready jobs of any priority, or the zero time if no job is ready.
	// An OldestReady long ago indicates that there are too few workers, which the number of waiting jobs alone
	// does not show. If a priority has more than a thousand jobs that can no longer run, OldestReady is the
	// RunAt of the thousandth such job; it may therefore be too early but is never too late.
	OldestReady time.Time
	OldestStart time.Time // earliest StartedAt of the running jobs (see [JobInfo]); zero if none is known
	NextAt      time.Time // time at which the next job becomes ready (see [Queue.NextClaimAt]); zero if there is none
	Pause       *Pause    // nil if the queue is not paused
	AsOf        time.Time // time of the counts
	Limits      Limits    // limits of the queue; Ready includes jobs that the limits prevent from starting
	Cancelled   int64     // jobs that were cancelled while running and occupy a slot of Limits until their handlers return
}

// Stats returns the counts of this queue. All counts are zero for a queue that was never used. Stats never waits for
// the writer. It reads an index entry for each job it counts, up to Options.CountLimit for each count. It reads rows
// only for jobs that a claim or a sweep has yet to settle.
//
// Counts below 10,000 jobs are always current. Larger counts are cached, for all callers of this DB, for a
// hundred times as long as they took to compute; AsOf is the time at which they were taken. OldestReady, NextAt
// and Pause are always current.
func (q *Queue[T]) Stats(ctx context.Context) (QueueStats, error) {
	stats, err := q.stats(ctx)
	return stats, fail("read stats", q.name, err)
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
		OldestReady: row.OldestReady,
		OldestStart: row.OldestStart,
		NextAt:      row.NextAt,
		Pause:       pauseOf(row.Pause),
		AsOf:        row.AsOf,
		Limits:      limitsOf(row.Limits),
		Cancelled:   row.Cancelled,
	}
}

// KeyStats describes the live jobs of a queue that share a [Key].
type KeyStats struct {
	Key       string
	Running   int64     // claimed jobs, including those whose claim has lapsed
	Cancelled int64     // cancelled while running, with handlers that may still be running; each occupies a slot like a running job
	Held      int64     // held until there is room for the key
	Waiting   int64     // all other jobs: ready, or waiting for their start time
	Oldest    time.Time // enqueue time of the oldest job that is not running; zero if all are running
	Pause     *Pause    // pause of this key, by [PauseOptions.Key] or a [SlowDown]; nil if the key is not paused
}

// maxKeys is the maximum number of keys returned by Keys.
const maxKeys = 1000

// Keys returns the keys of the queue's live jobs and the paused keys, at most 1,000. Keys with the most held
// jobs come first, then keys with the most running jobs. Keys reads all jobs of the queue that have a key. It
// never waits for the writer.
func (q *Queue[T]) Keys(ctx context.Context) ([]KeyStats, error) {
	keys, err := q.keys(ctx)
	return keys, fail("list keys", q.name, err)
}

func (q *queue) keys(ctx context.Context) (keys []KeyStats, err error) {
	if q.err != nil {
		return nil, q.err
	}
	err = q.db.engine.Read(ctx, func(ctx context.Context, r engine.Querier) error {
		rows, err := q.db.engine.Stores.Jobs.Keys(ctx, r, q.name, maxKeys, q.db.engine.NowAt(ctx))
		keys = make([]KeyStats, len(rows))
		for i, k := range rows {
			keys[i] = KeyStats{
				Key: k.Key, Running: k.Running, Cancelled: k.Cancelled, Held: k.Held, Waiting: k.Waiting, Oldest: k.Oldest, Pause: pauseOf(k.Pause),
			}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return keys, nil
}
