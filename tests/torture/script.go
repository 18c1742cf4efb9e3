//go:build unix

package torture

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/honker-go/honker"
)

// script runs a random sequence of steps on a DB. Each step is at most a single commit. The same
// seed produces the same script.
type script struct {
	name  string // unique among the scripts on the file
	db    *honker.DB
	rand  *rand.Rand
	steps map[string]step
	names []string

	jobs    *honker.Queue[string]
	events  *honker.Stream[string]
	member  *honker.Member[string]
	mail    *honker.Outbox[string]
	ids     []int64
	held    []*honker.Job[string]
	leased  []*honker.Delivery[string]
	locks   map[string]*honker.Lock
	topmost int64 // last published offset
	saved   int64 // saved offset of the consumer "c"
	number  int
}

// step performs an operation. The returned effect reports whether the operation is in the file.
type step func(context.Context) (effect, error)

type effect func(context.Context) (bool, error)

// nothing is the effect of a step that need not change the file.
func nothing(context.Context) (bool, error) { return true, nil }

var errOnPurpose = errors.New("rolled back on purpose")

// newScript returns a script. It joins a group under the given name.
func newScript(ctx context.Context, name string, db *honker.DB, luck *rand.Rand) (*script, error) {
	s := &script{name: name, db: db, rand: luck, locks: map[string]*honker.Lock{}}
	s.jobs = honker.NewQueue[string](db, "jobs", &honker.QueueOptions{Lease: time.Hour})
	s.events = honker.NewStream[string](db, "events", nil)
	s.mail = honker.NewOutbox[string](db, "mail", nil, nil)
	s.steps = map[string]step{
		"enqueue": s.enqueue, "enqueue many": s.enqueueMany, "all in one": s.allInOne, "roll back": s.rollBack,
		"claim": s.claim, "ack": s.ack, "retry": s.retry, "fail": s.fail, "snooze": s.snooze, "cancel": s.cancel,
		"result": s.result, "notify": s.notify, "publish": s.publish, "publish many": s.publishMany, "save": s.save,
		"take": s.take, "ack event": s.ackEvent, "nack event": s.nackEvent, "lock": s.lock, "unlock": s.unlock,
		"allow": s.allow, "send": s.send, "schedule": s.schedule, "tick": s.tick, "compact": s.compact,
		"checkpoint": s.checkpoint,
	}
	s.names = slices.Sorted(maps.Keys(s.steps))
	var err error
	s.member, err = s.events.Group("g", &honker.GroupOptions{Lease: time.Hour}).Join(ctx, name)
	return s, err
}

// next returns a random step.
func (s *script) next() (name string, do step) {
	name = s.names[s.rand.IntN(len(s.names))]
	return name, s.steps[name]
}

// text returns a unique payload. Some are many pages long.
func (s *script) text() string {
	s.number++
	length := 10 << s.rand.IntN(9)
	return fmt.Sprint(s.name, s.number, strings.Repeat("x", s.rand.IntN(length)))
}

func (s *script) texts() []string {
	out := make([]string, 2+s.rand.IntN(6))
	for i := range out {
		out[i] = s.text()
	}
	return out
}

// exist returns an effect that reports whether all jobs are live or dead, in any queue.
func (s *script) exist(ids ...int64) effect {
	return func(ctx context.Context) (bool, error) {
		for _, id := range ids {
			there, err := one[bool](ctx, s.db.SQL(), `SELECT EXISTS (SELECT 1 FROM _honker_live WHERE id = ?1)
				OR EXISTS (SELECT 1 FROM _honker_dead WHERE id = ?1)`, id)
			if err != nil || !there {
				return false, err
			}
		}
		return true, nil
	}
}

// is returns an effect that reports whether want accepts the job.
func (s *script) is(id int64, want func(*honker.JobInfo) bool) effect {
	return func(ctx context.Context) (bool, error) {
		info, err := s.jobs.Get(ctx, id)
		return err == nil && want(info), ignore(err, honker.ErrNotFound)
	}
}

func gone(e effect) effect {
	return func(ctx context.Context) (bool, error) {
		there, err := e(ctx)
		return !there, err
	}
}

// asks returns an effect that reports whether a query returns 1.
func (s *script) asks(query string, args ...any) effect {
	return func(ctx context.Context) (bool, error) { return one[bool](ctx, s.db.SQL(), query, args...) }
}

func ignore(err error, known ...error) error {
	for _, k := range known {
		if errors.Is(err, k) {
			return nil
		}
	}
	return err
}

func (s *script) enqueue(ctx context.Context) (effect, error) {
	id, err := s.jobs.Enqueue(ctx, s.text(), honker.Priority(s.rand.IntN(3)))
	if err == nil {
		s.ids = append(s.ids, id)
	}
	return s.exist(id), err
}

func (s *script) enqueueMany(ctx context.Context) (effect, error) {
	ids, err := s.jobs.EnqueueMany(ctx, s.texts())
	s.ids = append(s.ids, ids...)
	return s.exist(ids...), err
}

func (s *script) allInOne(ctx context.Context) (effect, error) {
	var id, offset int64
	text := s.text()
	err := s.db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) (err error) {
		id, offset, err = s.writeAll(ctx, tx, text)
		return err
	})
	if err != nil {
		return nil, err
	}
	s.ids, s.topmost = append(s.ids, id), offset
	return s.exist(id), nil
}

func (s *script) writeAll(ctx context.Context, tx *sql.Tx, text string) (id, offset int64, err error) {
	if id, err = s.jobs.EnqueueTx(ctx, tx, text); err != nil {
		return 0, 0, err
	}
	if offset, err = s.events.PublishTx(ctx, tx, text, honker.EventKey("k")); err != nil {
		return 0, 0, err
	}
	if _, err = s.db.NotifyTx(ctx, tx, "news", text); err != nil {
		return 0, 0, err
	}
	_, err = s.mail.SendTx(ctx, tx, text)
	return id, offset, err
}

func (s *script) rollBack(ctx context.Context) (effect, error) {
	text := s.text()
	err := s.db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if _, _, err := s.writeAll(ctx, tx, text); err != nil {
			return err
		}
		return errOnPurpose
	})
	return gone(s.asks(`SELECT EXISTS (SELECT 1 FROM _honker_notifications WHERE payload = json_quote(?))`, text)), ignore(err, errOnPurpose)
}

func (s *script) claim(ctx context.Context) (effect, error) {
	jobs, err := s.jobs.Claim(ctx, "w", 1+s.rand.IntN(4))
	s.held = append(s.held, jobs...)
	if len(jobs) == 0 {
		return nothing, err
	}
	return s.is(jobs[0].ID, func(j *honker.JobInfo) bool { return j.State == honker.StateProcessing }), err
}

// settle settles a random claim, if there is one. It is not used again, because a failed call may
// have settled it.
func (s *script) settle(do func(*honker.Job[string]) (effect, error)) (effect, error) {
	if len(s.held) == 0 {
		return nothing, nil
	}
	i := s.rand.IntN(len(s.held))
	job := s.held[i]
	s.held = slices.Delete(s.held, i, i+1)
	return do(job)
}

func (s *script) ack(ctx context.Context) (effect, error) {
	return s.settle(func(job *honker.Job[string]) (effect, error) {
		if err := job.SetResult(job.ID); err != nil {
			return nil, err
		}
		err := job.Ack(ctx)
		return gone(s.exist(job.ID)), err
	})
}

func (s *script) retry(ctx context.Context) (effect, error) {
	return s.settle(func(job *honker.Job[string]) (effect, error) {
		err := job.Retry(ctx, time.Second, errOnPurpose)
		return s.is(job.ID, func(j *honker.JobInfo) bool { return j.State != honker.StateProcessing }), err
	})
}

func (s *script) fail(ctx context.Context) (effect, error) {
	return s.settle(func(job *honker.Job[string]) (effect, error) {
		err := job.Reject(ctx, errOnPurpose)
		return s.is(job.ID, func(j *honker.JobInfo) bool { return j.State == honker.StateDead }), err
	})
}

func (s *script) snooze(ctx context.Context) (effect, error) {
	return s.settle(func(job *honker.Job[string]) (effect, error) {
		err := job.Snooze(ctx, time.Second)
		return s.is(job.ID, func(j *honker.JobInfo) bool { return j.State == honker.StatePending }), err
	})
}

func (s *script) cancel(ctx context.Context) (effect, error) {
	if len(s.ids) == 0 {
		return nothing, nil
	}
	id := s.ids[s.rand.IntN(len(s.ids))]
	cancelled, err := s.jobs.Cancel(ctx, id)
	if !cancelled {
		return nothing, err
	}
	s.held = slices.DeleteFunc(s.held, func(job *honker.Job[string]) bool { return job.ID == id })
	return gone(s.exist(id)), err
}
