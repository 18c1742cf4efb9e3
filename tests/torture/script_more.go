//go:build unix

package torture

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/honker-go/honker"
)

func (s *script) result(ctx context.Context) (effect, error) {
	id := int64(s.rand.IntN(20))
	err := s.jobs.SaveResult(ctx, id, s.text(), time.Hour)
	return s.asks(`SELECT EXISTS (SELECT 1 FROM _honker_results WHERE job_id = ?)`, id), err
}

func (s *script) notify(ctx context.Context) (effect, error) {
	id, err := s.db.Notify(ctx, "news", s.text())
	return s.asks(`SELECT EXISTS (SELECT 1 FROM _honker_notifications WHERE id = ?)`, id), err
}

func (s *script) publish(ctx context.Context) (effect, error) {
	offset, err := s.events.Publish(ctx, s.text())
	return s.published(offset, offset, err)
}

func (s *script) publishMany(ctx context.Context) (effect, error) {
	first, last, err := s.events.PublishMany(ctx, s.texts())
	return s.published(first, last, err)
}

func (s *script) published(first, last int64, err error) (effect, error) {
	if err == nil {
		s.topmost = last
	}
	return s.asks(`SELECT count(*) = ?3 - ?2 + 1 FROM _honker_stream WHERE topic = ?1 AND offset BETWEEN ?2 AND ?3`,
		s.events.Name(), first, last), err
}

func (s *script) save(ctx context.Context) (effect, error) {
	offset := min(s.saved+int64(s.rand.IntN(5)), s.topmost)
	_, err := s.events.SaveOffset(ctx, "c", offset)
	if err == nil {
		s.saved = offset
	}
	return func(ctx context.Context) (bool, error) {
		at, err := s.events.Offset(ctx, "c")
		return at >= offset, ignore(err, honker.ErrNotFound)
	}, err
}

func (s *script) take(ctx context.Context) (effect, error) {
	ds, err := s.member.Claim(ctx, 1+s.rand.IntN(4))
	s.leased = append(s.leased, ds...)
	if len(ds) == 0 {
		return nothing, err
	}
	return s.asks(`SELECT EXISTS (SELECT 1 FROM _honkerx_group_claims WHERE offset = ? AND token = ?)`, ds[0].Offset, ds[0].Token), err
}

func (s *script) settleEvent(do func(*honker.Delivery[string]) error) (effect, error) {
	if len(s.leased) == 0 {
		return nothing, nil
	}
	i := s.rand.IntN(len(s.leased))
	d := s.leased[i]
	s.leased = slices.Delete(s.leased, i, i+1)
	err := do(d)
	return gone(s.asks(`SELECT EXISTS (SELECT 1 FROM _honkerx_group_claims WHERE offset = ? AND token = ? AND holder <> '')`,
		d.Offset, d.Token)), err
}

func (s *script) ackEvent(ctx context.Context) (effect, error) {
	return s.settleEvent(func(d *honker.Delivery[string]) error { return d.Ack(ctx) })
}

func (s *script) nackEvent(ctx context.Context) (effect, error) {
	return s.settleEvent(func(d *honker.Delivery[string]) error { return d.Nack(ctx, errOnPurpose) })
}

func (s *script) lock(ctx context.Context) (effect, error) {
	name := fmt.Sprint("lock", s.rand.IntN(3))
	l, err := s.db.TryLock(ctx, name, &honker.LockOptions{TTL: time.Hour})
	if l != nil {
		s.locks[name] = l
	}
	return s.asks(`SELECT EXISTS (SELECT 1 FROM _honker_locks WHERE name = ?)`, name), ignore(err, honker.ErrLockHeld)
}

func (s *script) unlock(ctx context.Context) (effect, error) {
	name := fmt.Sprint("lock", s.rand.IntN(3))
	l := s.locks[name]
	if l == nil {
		return nothing, nil
	}
	delete(s.locks, name)
	err := l.Unlock(ctx)
	return gone(s.asks(`SELECT EXISTS (SELECT 1 FROM _honker_locks WHERE name = ?)`, name)), err
}

// unlockAll releases all locks, as Close would, but in separate steps.
func (s *script) unlockAll(ctx context.Context, done func(string) error) error {
	for _, name := range slices.Sorted(maps.Keys(s.locks)) {
		if err := errors.Join(s.locks[name].Unlock(ctx), done("unlock")); err != nil {
			return err
		}
	}
	return nil
}

func (s *script) allow(ctx context.Context) (effect, error) {
	_, err := s.db.RateLimit("calls", 1000, time.Hour).Allow(ctx)
	return s.asks(`SELECT EXISTS (SELECT 1 FROM _honker_rate_limits WHERE name = 'calls')`), err
}

func (s *script) send(ctx context.Context) (effect, error) {
	id, err := s.mail.Send(ctx, s.text())
	return s.exist(id), err
}

func (s *script) schedule(ctx context.Context) (effect, error) {
	name := fmt.Sprint("schedule", s.rand.IntN(4))
	err := s.db.Scheduler().Register(ctx, honker.Schedule{Name: name, Queue: "fired", Spec: "@every 60s"})
	return s.asks(`SELECT EXISTS (SELECT 1 FROM _honker_scheduler_tasks WHERE name = ?)`, name), err
}

// tick moves time ahead by up to ten minutes, so a schedule may fire several times.
func (s *script) tick(ctx context.Context) (effect, error) {
	fires, err := s.db.Scheduler().Tick(ctx, time.Now().Add(time.Duration(s.rand.IntN(600))*time.Second))
	ids := make([]int64, len(fires))
	for i, f := range fires {
		ids[i] = f.JobID
	}
	return s.exist(ids...), err
}

func (s *script) compact(ctx context.Context) (effect, error) {
	if s.rand.IntN(2) == 0 {
		return nothing, s.events.SetRetention(ctx, honker.Retention{MaxCount: int64(1 + s.rand.IntN(20))})
	}
	_, err := s.events.Compact(ctx)
	return nothing, err
}

func (s *script) checkpoint(ctx context.Context) (effect, error) {
	mode := []string{"PASSIVE", "FULL", "RESTART", "TRUNCATE"}[s.rand.IntN(4)]
	_, err := s.db.SQL().ExecContext(ctx, `PRAGMA wal_checkpoint(`+mode+`)`)
	return nothing, err
}
