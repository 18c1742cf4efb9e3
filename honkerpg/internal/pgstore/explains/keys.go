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

// key is a key's state as the next claims see it. Each simulated claim updates it.
type key struct {
	pause     *row.Pause
	running   int64   // jobs running now or taken by an earlier claim
	first     int64   // lowest id of its jobs that can run, in an ordered queue; math.MaxInt64 if none
	tat, next float64 // Unix seconds until which starts are used up, and taken by jobs that wait for their start
}

// full reports whether the key has reached its limit of running jobs. With InOrder, first is the key's job that must run
// before the job id, or 0.
func (k *key) full(l row.QueueLimits, id int64) (full bool, first int64) {
	full = l.PerKey > 0 && k.running >= l.PerKey || l.InOrder && k.running > 0
	if l.InOrder && k.first < id {
		first = k.first
	}
	return full, first
}

// startAt returns the time at which the next of the key's jobs may start at the key's rate, or the zero time if it may
// start now.
func (k *key) startAt(o *forecast) time.Time {
	r := rate{o.Limits.KeyRate}
	if r.N == 0 || k.next == 0 && r.starts(unix(o.now), k.tat) > 0 {
		return time.Time{}
	}
	return instant(max(k.tat, k.next) + r.every()*float64(1-r.Burst))
}

// claim simulates a claim that reaches one of the key's jobs, and reports whether the job starts.
func (k *key) claim(o *forecast, c candidate) bool {
	if full, first := k.full(o.Limits, c.id); full || first != 0 || k.pause != nil {
		return false
	}
	r, now := rate{o.Limits.KeyRate}, unix(o.now)
	if !k.startAt(o).IsZero() {
		k.next = max(k.tat, k.next) + r.every()
		return false
	}
	k.running++
	if r.N > 0 {
		if !r.counts(now, k.tat) {
			k.tat = now
		}
		k.tat += r.every()
	}
	return true
}

// forecastJobs bounds the jobs that a forecast examines individually.
const forecastJobs = 1000

const (
	sqlDueJobs   = `SELECT id, priority, run_at, key, ok FROM honker.due_jobs($1, $2, $3)`
	sqlHeldJobs  = `SELECT id, priority, run_at, key FROM honker.held_jobs($1, $2, $3, $4)`
	sqlKeyStates = `SELECT key, paused_at, paused_until, coalesce(reason, ''), coalesce(who, ''), tat, running, first FROM honker.key_states($1, $2, $3)`
)

// readHead reads the first jobs in claim order. over lists the keys whose held jobs the next claim may release.
func (o *forecast) readHead(ctx context.Context, over []string) error {
	var pending []candidate
	looked := 0
	err := o.each(ctx, sqlDueJobs, func(r *sql.Rows) error {
		var c candidate
		var key sql.NullString
		var ok bool
		err := r.Scan(append(c.scan(&key), &ok)...)
		if looked++; ok {
			c.key = key.String
			pending = append(pending, c)
		}
		return err
	}, o.Name, forecastJobs, o.now)
	if err != nil {
		return err
	}
	held, err := o.held(ctx, over)
	if err != nil {
		return err
	}
	o.head, o.more = slices.Concat(pending, o.settled, held), looked == forecastJobs
	slices.SortFunc(o.head, candidate.compare)
	if o.more && len(pending) > 0 { // jobs after the last pending job are unknown
		last := pending[len(pending)-1]
		o.head = slices.DeleteFunc(o.head, func(c candidate) bool { return c.compare(last) > 0 })
	}
	var keys []string
	for _, c := range o.head {
		keys = append(keys, c.key)
	}
	return o.readKeys(ctx, keys)
}

// held returns the due jobs that are held by keys.
func (o *forecast) held(ctx context.Context, keys []string) (found []candidate, err error) {
	if len(keys) == 0 {
		return nil, nil
	}
	err = o.each(ctx, sqlHeldJobs, func(r *sql.Rows) error {
		var c candidate
		var key sql.NullString
		err := r.Scan(c.scan(&key)...)
		c.key = key.String
		found = append(found, c)
		return err
	}, o.Name, slices.Compact(slices.Sorted(slices.Values(keys))), forecastJobs, o.now)
	return found, err
}

// readKeys reads the state of the keys that are not yet in o.keys.
func (o *forecast) readKeys(ctx context.Context, keys []string) error {
	var unknown []string
	for _, k := range keys {
		if k != "" && o.keys[k] == nil {
			o.keys[k] = &key{first: math.MaxInt64}
			unknown = append(unknown, k)
		}
	}
	if len(unknown) == 0 || !o.keyed {
		return nil
	}
	return o.each(ctx, sqlKeyStates, func(r *sql.Rows) error {
		var name string
		var p row.Pause
		var since, until, tat sql.NullTime
		var first sql.NullInt64
		k := key{first: math.MaxInt64}
		err := r.Scan(&name, &since, &until, &p.Reason, &p.By, &tat, &k.running, &first)
		if tat.Valid {
			k.tat = unix(tat.Time)
		}
		if since.Valid {
			p.Since, p.Until = pgsql.Instant(since), pgsql.Instant(until)
			k.pause = &p
		}
		if first.Valid {
			k.first = first.Int64
		}
		o.keys[name] = &k
		return err
	}, o.Name, unknown, o.now)
}

// lasting returns the obstacles that may still keep a job from starting when it becomes due. It is for jobs that are not
// due yet.
func (o *forecast) lasting(ctx context.Context, job *row.Job) (s row.JobForecast, err error) {
	if job.Key == "" || !o.keyed {
		return s, nil
	}
	if err := o.readKeys(ctx, []string{job.Key}); err != nil {
		return s, err
	}
	k := o.keys[job.Key]
	s.KeyPause = k.pause
	_, s.First = k.full(o.Limits, job.ID)
	return s, nil
}

// byKeys simulates the claims of the jobs ahead of c and records their effect on c in s.
func (o *forecast) byKeys(ctx context.Context, c candidate, s *row.JobForecast) error {
	ahead := slices.DeleteFunc(slices.Clone(o.head), func(d candidate) bool { return d.compare(c) >= 0 })
	s.Ahead.More = o.more && len(ahead) == len(o.head)
	if c.key != "" && o.Limits.KeyRate.N > 0 {
		held, err := o.held(ctx, []string{c.key})
		if err != nil {
			return err
		}
		for _, d := range held { // those before it in the order of its key start before it
			if d.compare(c) < 0 && !slices.Contains(ahead, d) {
				ahead = append(ahead, d)
			}
		}
		slices.SortFunc(ahead, candidate.compare)
	}
	if err := o.readKeys(ctx, []string{c.key}); err != nil {
		return err
	}
	claims := o.claims()
	for _, d := range ahead {
		if claims.take(d) {
			s.Ahead.N++
		}
	}
	if c.key == "" {
		return nil
	}
	k := claims.key(c.key)
	s.KeyPause, s.KeyRunning, s.KeyStart = k.pause, k.running, k.startAt(o)
	s.KeyFull, s.First = k.full(o.Limits, c.id)
	return nil
}

// claims simulates consecutive claims of single jobs. Each claim changes the state that the next claim finds.
type claims struct {
	o    *forecast
	keys map[string]*key
}

// claims starts a simulation. It copies the keys it changes, so o can be reused for other jobs.
func (o *forecast) claims() claims { return claims{o, make(map[string]*key)} }

// key returns a key's simulated state, which readKeys must have read before.
func (s claims) key(name string) *key {
	if s.keys[name] == nil {
		k := *s.o.keys[name]
		s.keys[name] = &k
	}
	return s.keys[name]
}

// take simulates a claim that reaches c, and reports whether it takes the job. It ignores the queue's pause and limits.
func (s claims) take(c candidate) bool {
	return c.key == "" || !s.o.keyed || s.key(c.key).claim(s.o, c)
}

const sqlFirstWaiting = `SELECT honker.first_waiting($1, $2)`

// first returns the first job that the next claims take, ignoring the queue's pause and limits, and the number of jobs
// they take. If they take none, first is 0 and waits is a job that waits for some other reason, or 0 if the queue is empty.
func (o *forecast) first(ctx context.Context) (first, waits int64, n row.Count, err error) {
	if !o.keyed {
		if err := o.readHead(ctx, nil); err != nil {
			return 0, 0, n, err
		}
	}
	claims := o.claims()
	for _, c := range o.head {
		if claims.take(c) {
			first = cmp.Or(first, c.id)
			n.N++
		}
	}
	n.More = o.more
	switch {
	case first != 0:
		return first, 0, n, nil
	case len(o.head) > 0:
		return 0, o.head[0].id, n, nil
	}
	found, err := o.ids(ctx, sqlFirstWaiting, o.Name, o.now)
	if len(found) > 0 {
		waits = found[0]
	}
	return 0, waits, n, err
}
