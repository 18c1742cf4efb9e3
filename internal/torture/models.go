//go:build unix

package torture

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/honker-go/honker"
)

// Models does random things to a queue and a stream and to models of them in plain Go,
// and compares all answers.
//
// Time passes by being subtracted from all times in the file, as other clocks would see
// it. It passes by thousands of seconds, and spans end on five hundred, so that it does
// not matter which second it really is.
func Models(ctx context.Context, r *Round) error {
	db, err := honker.Open(context.WithoutCancel(ctx), filepath.Join(r.Dir, "app.db"), &honker.Options{NoFileNotices: true})
	if err != nil {
		return err
	}
	defer db.Close()
	r.Add("mismatches", 0)
	m := newModels(r, db)
	for i := 0; i < 3000 && ctx.Err() == nil; i++ {
		name := m.names[m.Rand.IntN(len(m.names))]
		if err := m.steps[name](); err != nil {
			if errors.Is(err, errMismatch) {
				r.Add("mismatches", 1)
			}
			return fmt.Errorf("step %d, %s: %w", i, name, err)
		}
		if i%50 == 49 {
			if err := m.compareAll(); err != nil {
				return fmt.Errorf("after step %d, %s: %w", i, name, err)
			}
		}
	}
	return db.Check(context.Background())
}

var errMismatch = errors.New("file and model differ")

// same compares what the library said with what the model says.
func (m *models) same(what string, got, want any) error {
	m.Add("operations", 1)
	if fmt.Sprint(got) != fmt.Sprint(want) {
		return fmt.Errorf("%w: %s: the file has %v, the model %v", errMismatch, what, got, want)
	}
	return nil
}

type models struct {
	*Round
	ctx   context.Context
	db    *honker.DB
	steps map[string]func() error
	names []string

	q      *honker.Queue[int64]
	jobs   map[int64]*modelJob
	ids    []int64
	claims []*honker.Job[int64]

	s       *honker.Stream[int64]
	events  []event
	offsets map[string]int64
	said    int64
}

// modelJob is a job; its times are unix seconds.
type modelJob struct {
	state                 honker.State
	priority, tries, most int
	runAt, until, expires int64
	worker                string
}

// spans that end on five hundred, and how far time goes.
const (
	span = 1500 * time.Second
	leap = 1000 * time.Second
)

func second() int64 { return time.Now().Unix() }

func (m *models) lapsed(j *modelJob) bool {
	return j.state == honker.Processing && j.until < second()
}

func (j *modelJob) expired() bool { return j.expires > 0 && j.expires <= second() }

func (j *modelJob) wait() { j.state, j.worker, j.until = honker.Pending, "", 0 }

func (j *modelJob) die() {
	j.wait()
	j.state, j.expires = honker.Dead, 0
}

// advance lets time pass.
func (m *models) advance() error {
	seconds := int64(leap/time.Second) * int64(1+m.Rand.IntN(2))
	for _, statement := range []string{
		`UPDATE _honker_live SET run_at = run_at - ?1, claim_expires_at = claim_expires_at - ?1, expires_at = expires_at - ?1`,
		`UPDATE _honker_dead SET run_at = run_at - ?1`,
	} {
		if _, err := m.db.SQL().ExecContext(m.ctx, statement, seconds); err != nil {
			return err
		}
	}
	for _, j := range m.jobs {
		j.runAt -= seconds
		if j.until > 0 {
			j.until -= seconds
		}
		if j.expires > 0 {
			j.expires -= seconds
		}
	}
	return nil
}

// compareAll compares each job, and what there is of what.
func (m *models) compareAll() error {
	want := map[honker.State]int{}
	for id, j := range m.jobs {
		want[j.state]++
		if err := m.get(id); err != nil {
			return err
		}
	}
	got := map[honker.State]int{}
	err := eachRow(m.ctx, m.db.SQL(), `SELECT state, count(*) FROM _honker_live GROUP BY state
		UNION ALL SELECT 'dead', count(*) FROM _honker_dead HAVING count(*) > 0`,
		func(row []any) { got[honker.State(fmt.Sprint(row[0]))] = int(row[1].(int64)) })
	if err != nil {
		return err
	}
	return m.same("all jobs", got, want)
}

// get compares one job.
func (m *models) get(id int64) error {
	info, err := m.q.Get(m.ctx, id)
	j := m.jobs[id]
	if j == nil {
		return m.same(fmt.Sprint("job ", id), errors.Is(err, honker.ErrNotFound), true)
	}
	if err != nil {
		return fmt.Errorf("job %d: %w", id, err)
	}
	got := []any{info.State, info.Priority, info.Attempts, info.MaxAttempts, info.WorkerID, info.RunAt.Unix(), info.ExpiresAt.IsZero()}
	return m.same(fmt.Sprint("job ", id), got, []any{j.state, j.priority, j.tries, j.most, j.worker, j.runAt, j.expires == 0})
}

// learn takes over which second it was when the job got its time, if it is about right.
func (m *models) learn(id, about int64) error {
	info, err := m.q.Get(m.ctx, id)
	if err != nil {
		return err
	}
	at := info.RunAt.Unix()
	if at < about-5 || at > about+5 {
		return fmt.Errorf("%w: job %d runs at %d, and not about %d", errMismatch, id, at, about)
	}
	m.jobs[id].runAt = at
	return nil
}
