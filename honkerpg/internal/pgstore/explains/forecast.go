package explains

import (
	"cmp"
	"context"
	"database/sql"
	"math"
	"slices"
	"time"

	"github.com/honker-go/honker/honkerpg/internal/pgstore/jobs"
	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/internal/row"
)

// forecast predicts a queue's next claims without claiming: whether they take a job, after how many others, and why the
// job cannot start. It assumes that each claim takes a single job, that all claims happen at the same moment, and that the
// workers have room for every job. It follows honker.claim_lanes step by step.
type forecast struct {
	row.QueueForecast
	reader

	most    int     // bound on the jobs counted as ahead of a job
	tat     float64 // until then the starts of the queue's rate are used up, in Unix seconds
	settled []candidate
	freed   map[int64]bool // held jobs that the next claim releases by dead-lettering another job

	keyed bool            // the queue has limits on keys
	head  []candidate     // if keyed, the first jobs in claim order
	more  bool            // more jobs may follow head
	keys  map[string]*key // the keys read so far
}

// candidate is a job that a claim considers.
type candidate struct {
	id, priority int64
	due          time.Time
	key          string // empty if the job has no key
}

// compare orders candidates as claims do: highest priority first, then by time and id.
func (a candidate) compare(b candidate) int {
	return cmp.Or(cmp.Compare(b.priority, a.priority), a.due.Compare(b.due), cmp.Compare(a.id, b.id))
}

// scan returns the destinations of a candidate's columns.
func (a *candidate) scan(key *sql.NullString) []any { return []any{&a.id, &a.priority, &a.due, key} }

const (
	// The key '' stands for the queue.
	sqlQueue = `SELECT x.paused_at, x.paused_until, coalesce(x.reason, ''), coalesce(x.who, ''), x.keyed, s.tat
FROM honker.queue x LEFT JOIN honker.starts s ON s.queue = x.queue AND s.key = '' AND s.turn = x.rate_turn WHERE x.queue = $1`
	sqlInSlots      = `SELECT running, cancelled FROM honker.in_slots($1, $2)`
	sqlOverdueJobs  = `SELECT id, priority, run_at, key, over FROM honker.overdue_jobs($1, $2, $3)`
	sqlFreedBy      = `SELECT id, priority, run_at, key FROM honker.freed_by($1, $2, $3)`
	sqlKeysWithRoom = `SELECT honker.keys_with_room($1, $2)`
)

// newForecast reads the part of queue's state that does not depend on a particular job. It counts up to most jobs as ahead
// of a job.
func (r reader) newForecast(ctx context.Context, queue string, most int) (*forecast, error) {
	o := &forecast{QueueForecast: row.QueueForecast{Name: queue}, reader: r, most: most, freed: make(map[int64]bool), keys: make(map[string]*key)}
	var err error
	if o.Limits, err = (jobs.Limits{Schema: r.Schema}).Get(ctx, r.q, queue); err != nil {
		return nil, err
	}
	if err := o.readQueue(ctx); err != nil {
		return nil, err
	}
	if err := o.one(ctx, sqlInSlots, []any{queue, o.now}, &o.Running, &o.Cancelled); err != nil {
		return nil, err
	}
	o.Running += o.Cancelled
	over, err := o.settle(ctx)
	if err != nil || !o.keyed {
		return o, err
	}
	err = o.each(ctx, sqlKeysWithRoom, func(rows *sql.Rows) error {
		var key string
		err := rows.Scan(&key)
		over = append(over, key)
		return err
	}, queue, o.now)
	if err != nil {
		return nil, err
	}
	return o, o.readHead(ctx, over)
}

// readQueue reads the queue's pause, and until when the starts of its rate are spent.
func (o *forecast) readQueue(ctx context.Context) error {
	var p row.Pause
	var since, until, tat sql.NullTime
	err := o.one(ctx, sqlQueue, []any{o.Name}, &since, &until, &p.Reason, &p.By, &o.keyed, &tat)
	if since.Valid && (!until.Valid || until.Time.After(o.now)) {
		p.Since, p.Until = pgsql.Instant(since), pgsql.Instant(until)
		o.Pause = &p
	}
	o.tat = unix(tat.Time)
	return err
}

// settle reads the jobs that the next claim settles first, and adds those that it makes claimable to the candidates. It
// returns the keys that gain a free slot.
func (o *forecast) settle(ctx context.Context) (keys []string, err error) {
	var dying []int64
	err = o.each(ctx, sqlOverdueJobs, func(r *sql.Rows) error {
		var c candidate
		var key sql.NullString
		var over bool
		err := r.Scan(append(c.scan(&key), &over)...)
		if c.key = key.String; c.key != "" && !slices.Contains(keys, c.key) {
			keys = append(keys, c.key)
		}
		if over {
			dying = append(dying, c.id)
		} else {
			o.settled = append(o.settled, c)
		}
		return err
	}, o.Name, o.keyed, o.now)
	if err != nil || len(dying) == 0 {
		return keys, err
	}
	return keys, o.each(ctx, sqlFreedBy, func(r *sql.Rows) error {
		var c candidate
		var key sql.NullString
		err := r.Scan(c.scan(&key)...)
		c.key = key.String
		o.freed[c.id] = true
		if !c.due.After(o.now) {
			o.settled = append(o.settled, c)
		}
		return err
	}, o.Name, dying, o.now)
}

// of predicts how the next claims treat a job in the queue that is due.
func (o *forecast) of(ctx context.Context, job *row.Job, side row.JobSide) (s row.JobForecast, err error) {
	c := candidate{id: job.ID, priority: job.Priority, due: job.RunAt, key: job.Key}
	if o.keyed {
		err = o.byKeys(ctx, c, &s)
	} else {
		s.Ahead, err = o.count(ctx, c)
	}
	if err == nil {
		o.queueLimits(&s)
	}
	return s, err
}

// queueLimits applies the queue's limits to the jobs ahead of a job.
func (o *forecast) queueLimits(s *row.JobForecast) {
	if o.Limits.Running > 0 {
		s.QueueFull = s.Ahead.N >= o.Limits.Running-o.Running
	}
	if o.Limits.Rate.N == 0 {
		return
	}
	r, now := rate{o.Limits.Rate}, unix(o.now)
	starts := r.starts(now, o.tat)
	s.RateSpent = s.Ahead.N >= starts
	if starts == 0 {
		s.Next = r.nth(now, o.tat, 0)
	}
	s.About = r.nth(now, o.tat, s.Ahead.N)
}

const sqlDueBefore = `SELECT looked, ahead FROM honker.due_before($1, $2, $3, $4, $5, $6)`

// count returns the number of jobs ahead of c in a queue without limits on keys.
func (o *forecast) count(ctx context.Context, c candidate) (ahead row.Count, err error) {
	var looked, ok int64
	err = o.one(ctx, sqlDueBefore, []any{o.Name, c.priority, c.due, c.id, o.most, o.now}, &looked, &ok)
	for _, s := range o.settled {
		if s.compare(c) < 0 {
			ok++
		}
	}
	return row.Count{N: ok, More: looked >= int64(o.most)}, err
}

// rate is a limit of starts, by GCRA (generic cell rate algorithm), with the arithmetic of honker.starts_left. Each start
// advances tat, the theoretical arrival time, by an interval. With a burst of n, the next start is allowed n-1 intervals
// before tat. Times are Unix seconds.
type rate struct{ row.StartRate }

// slack is how early a start may be.
const slack = 0.0005

// every returns the interval between two starts.
func (r rate) every() float64 { return r.Every() / 1000 }

// counts reports whether tat limits starts at now. A tat that is further ahead than a burst comes from a clock that has
// gone back since.
func (r rate) counts(now, tat float64) bool {
	return tat >= now && tat <= now+r.every()*float64(r.Burst)+1
}

// starts returns how many jobs may start at now.
func (r rate) starts(now, tat float64) int64 {
	if !r.counts(now, tat) {
		return r.Burst
	}
	return max(0, int64(math.Floor((now+slack-tat)/r.every()))+r.Burst)
}

// nth returns the earliest start of the job that starts after n others.
func (r rate) nth(now, tat float64, n int64) time.Time {
	if !r.counts(now, tat) {
		tat = now
	}
	return instant(tat + r.every()*(float64(n)+1-float64(r.Burst)))
}

func unix(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }

// instant returns the time at a Unix second as a row shows it.
func instant(s float64) time.Time {
	return pgsql.Shown(time.UnixMicro(int64(math.Round(min(s, 8e12) * 1e6))))
}
