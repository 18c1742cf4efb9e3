package explains

import (
	"cmp"
	"context"
	"database/sql"
	"math"
	"slices"
	"time"

	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/internal/row"
)

// forecast predicts a queue's next claims without claiming: whether they take a job, after how many others, and why the
// job cannot start. It assumes that each claim takes a single job, that all claims happen at the same moment, and that the
// workers have room for every job. It follows honker.claim_lanes step by step.
type forecast struct {
	row.QueueForecast
	reader

	most    int       // bound on the jobs counted as ahead of a job
	tat     time.Time // until then the starts of the queue's rate are used up
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
	sqlQueue = `SELECT paused_at, paused_until, coalesce(reason, ''), coalesce(who, ''), coalesce(running, 0), coalesce(per_key, 0), in_order,
  coalesce(rate_n, 0), coalesce(extract(epoch FROM rate_per) * 1000000, 0)::bigint, coalesce(rate_burst, 0), rate_tat,
  coalesce(key_rate_n, 0), coalesce(extract(epoch FROM key_rate_per) * 1000000, 0)::bigint, coalesce(key_rate_burst, 0), coalesce(keys_paused, 0)
FROM honker.queue WHERE queue = $1`
	sqlInSlots      = `SELECT running, cancelled FROM honker.in_slots($1, $2)`
	sqlLapsedJobs   = `SELECT id, priority, run_at, key, over FROM honker.lapsed_jobs($1, $2)`
	sqlFreedBy      = `SELECT id, priority, run_at, key FROM honker.freed_by($1, $2, $3)`
	sqlKeysWithRoom = `SELECT honker.keys_with_room($1, $2)`
)

// newForecast reads the part of queue's state that does not depend on a particular job. It counts up to most jobs as ahead
// of a job.
func (r reader) newForecast(ctx context.Context, queue string, most int) (*forecast, error) {
	o := &forecast{QueueForecast: row.QueueForecast{Name: queue}, reader: r, most: most, freed: make(map[int64]bool), keys: make(map[string]*key)}
	if err := o.limits(ctx); err != nil {
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

// limits reads the queue's pause and limits.
func (o *forecast) limits(ctx context.Context) error {
	var p row.Pause
	var since, until, tat sql.NullTime
	var per, keyPer, keysPaused int64
	l := &o.Limits
	err := o.one(ctx, sqlQueue, []any{o.Name}, &since, &until, &p.Reason, &p.By, &l.Running, &l.PerKey, &l.InOrder,
		&l.Rate.N, &per, &l.Rate.Burst, &tat, &l.KeyRate.N, &keyPer, &l.KeyRate.Burst, &keysPaused)
	if since.Valid && (!until.Valid || until.Time.After(o.now)) {
		p.Since, p.Until = pgsql.Instant(since), pgsql.Instant(until)
		o.Pause = &p
	}
	l.Rate.Per, l.KeyRate.Per = time.Duration(per)*time.Microsecond, time.Duration(keyPer)*time.Microsecond
	o.tat, o.keyed = tat.Time, l.PerKey > 0 || l.InOrder || l.KeyRate.N > 0 || keysPaused > 0
	return err
}

// settle reads the jobs whose claims have lapsed, and adds those that the next claim makes claimable to the candidates. It
// returns the keys that gain a free slot.
func (o *forecast) settle(ctx context.Context) (keys []string, err error) {
	var dying []int64
	err = o.each(ctx, sqlLapsedJobs, func(r *sql.Rows) error {
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
	}, o.Name, o.now)
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
	r := rate{o.Limits.Rate}
	starts, next := r.starts(o.now, o.tat)
	s.RateSpent = s.Ahead.N >= starts
	if starts == 0 {
		s.Next = pgsql.Shown(next)
	}
	s.About = pgsql.Shown(r.nth(o.now, o.tat, s.Ahead.N))
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

// rate is a limit of starts, by GCRA (generic cell rate algorithm): each start advances tat, the theoretical arrival time,
// by an interval. With a burst of n, the next start is allowed n-1 intervals before tat.
type rate struct{ row.StartRate }

// every returns the interval between two starts.
func (r rate) every() float64 { return float64(r.Per) / float64(r.N) }

// starts returns how many jobs may start at now. If none may, next is the time of the next start.
func (r rate) starts(now, tat time.Time) (n int64, next time.Time) {
	if tat.Before(now) {
		return r.Burst, next
	}
	next = tat.Add(-time.Duration(r.every() * float64(r.Burst-1)))
	if next.After(now) {
		return 0, next
	}
	return int64(math.Floor(float64(now.Sub(next))/r.every())) + 1, time.Time{}
}

// nth returns the earliest start of the job that starts after n others.
func (r rate) nth(now, tat time.Time, n int64) time.Time {
	if tat.Before(now) {
		tat = now
	}
	return tat.Add(time.Duration(r.every() * float64(n+1-r.Burst)))
}
