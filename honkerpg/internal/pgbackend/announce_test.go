//go:build unix

package pgbackend_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
	"github.com/honker-go/honker/honkerpg"
	"github.com/honker-go/honker/honkerpg/internal/pgbackend"
	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/honkerpg/internal/pgtest"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/wake"
)

// acting is a process that is about to run a verb. name is of its queue, topic and so on.
type acting struct {
	*testing.T
	db   *honker.DB
	pool *pgxpool.Pool // of the application
	name string
}

func (p *acting) queue() *honker.Queue[int] {
	return honker.NewQueue[int](p.db, p.name, &honker.QueueOptions{Lease: time.Hour})
}

func (p *acting) other() *honker.Queue[int] {
	return honker.NewQueue[int](p.db, p.name+" other", &honker.QueueOptions{Lease: time.Hour})
}

func (p *acting) key() wake.Key { return wake.Key{Kind: wake.QueueReady, Name: p.name} }

func (p *acting) jobKey(id int64) wake.Key {
	return wake.Key{Kind: wake.JobDone, Name: fmt.Sprint(id)}
}

func (p *acting) enqueue(q *honker.Queue[int], opts ...honker.EnqueueOption) int64 {
	p.Helper()
	id, err := q.Enqueue(p.Context(), 1, opts...)
	require.NoError(p, err)
	return id
}

// claimed enqueues a job and claims it.
func (p *acting) claimed(q *honker.Queue[int], opts ...honker.EnqueueOption) *honker.Job[int] {
	p.Helper()
	p.enqueue(q, opts...)
	jobs, err := q.Claim(p.Context(), "w", 1)
	require.NoError(p, err)
	require.Len(p, jobs, 1)
	return jobs[0]
}

// claimedOf enqueues n jobs in a queue with limits, and claims as many as may run.
func (p *acting) claimedOf(n int, l honker.Limits, opts ...honker.EnqueueOption) *honker.Job[int] {
	p.Helper()
	require.NoError(p, p.queue().SetLimits(p.Context(), l))
	for range n {
		p.enqueue(p.queue(), opts...)
	}
	jobs, err := p.queue().Claim(p.Context(), "w", n)
	require.NoError(p, err)
	require.Len(p, jobs, 1)
	return jobs[0]
}

// change has the forms of a verb, alone and in a transaction. A form is nil if the verb lacks it.
type change struct {
	alone  func(context.Context) error
	within func(context.Context, honker.Tx) error
}

// soon is a delay that is shorter than the pauses between looks.
const soon = 300 * time.Millisecond

var errWhy = errors.New("why")

// none drops the first result of a verb.
func none[T any](_ T, err error) error { return err }

// announced are verbs that may let another process do something, or end a wait of it. Each function prepares a verb, and
// returns the signals that another process waits for.
var announced = map[string]func(p *acting) (wake.Key, change){
	"enqueue": func(p *acting) (wake.Key, change) {
		return p.key(), change{
			func(ctx context.Context) error { return none(p.queue().Enqueue(ctx, 1)) },
			func(ctx context.Context, tx honker.Tx) error { return none(p.queue().EnqueueTx(ctx, tx, 1)) },
		}
	},
	"enqueue with a delay": func(p *acting) (wake.Key, change) {
		return p.key(), change{
			func(ctx context.Context) error { return none(p.queue().Enqueue(ctx, 1, honker.Delay(soon))) },
			func(ctx context.Context, tx honker.Tx) error {
				return none(p.queue().EnqueueTx(ctx, tx, 1, honker.Delay(soon)))
			},
		}
	},
	"retry with a delay": func(p *acting) (wake.Key, change) {
		job := p.claimed(p.queue())
		return p.key(), change{
			func(ctx context.Context) error { return job.Retry(ctx, soon, errWhy) },
			func(ctx context.Context, tx honker.Tx) error { return job.RetryTx(ctx, tx, soon, errWhy) },
		}
	},
	"retry": func(p *acting) (wake.Key, change) {
		job := p.claimed(p.queue())
		return p.key(), change{
			func(ctx context.Context) error { return job.Retry(ctx, 0, errWhy) },
			func(ctx context.Context, tx honker.Tx) error { return job.RetryTx(ctx, tx, 0, errWhy) },
		}
	},
	"snooze": func(p *acting) (wake.Key, change) {
		job := p.claimed(p.queue())
		return p.key(), change{
			func(ctx context.Context) error { return job.Snooze(ctx, soon) },
			func(ctx context.Context, tx honker.Tx) error { return job.SnoozeTx(ctx, tx, soon) },
		}
	},
	"extend": func(p *acting) (wake.Key, change) {
		job := p.claimed(p.queue())
		return p.key(), change{alone: func(ctx context.Context) error { return job.Extend(ctx, time.Second) }}
	},
	"death": func(p *acting) (wake.Key, change) {
		job := p.claimed(p.queue(), honker.MaxAttempts(1))
		return p.jobKey(job.ID), change{
			func(ctx context.Context) error { return job.Retry(ctx, 0, errWhy) },
			func(ctx context.Context, tx honker.Tx) error { return job.RetryTx(ctx, tx, 0, errWhy) },
		}
	},
	"ack": func(p *acting) (wake.Key, change) {
		job := p.claimed(p.queue())
		return p.jobKey(job.ID), change{job.Ack, job.AckTx}
	},
	"ack of many": func(p *acting) (wake.Key, change) {
		job := p.claimed(p.queue())
		return p.jobKey(job.ID), change{alone: func(ctx context.Context) error { return none(p.queue().AckMany(ctx, "w", []int64{job.ID})) }}
	},
	"ack with a limit": func(p *acting) (wake.Key, change) {
		job := p.claimedOf(2, honker.Limits{Running: 1})
		return p.key(), change{job.Ack, job.AckTx}
	},
	"ack of many with a limit": func(p *acting) (wake.Key, change) {
		job := p.claimedOf(2, honker.Limits{Running: 1})
		return p.key(), change{alone: func(ctx context.Context) error { return none(p.queue().AckMany(ctx, "w", []int64{job.ID})) }}
	},
	"ack with a limit of keys": func(p *acting) (wake.Key, change) {
		job := p.claimedOf(2, honker.Limits{PerKey: 1}, honker.Key("k"))
		return p.key(), change{job.Ack, job.AckTx}
	},
	"cancel in order": func(p *acting) (wake.Key, change) {
		require.NoError(p, p.queue().SetLimits(p.Context(), honker.Limits{InOrder: true}))
		first := p.enqueue(p.queue(), honker.Key("k"), honker.Delay(time.Hour))
		p.enqueue(p.queue(), honker.Key("k"))
		require.Empty(p, func() []*honker.Job[int] { jobs, _ := p.queue().Claim(p.Context(), "w", 1); return jobs }())
		return p.key(), change{
			func(ctx context.Context) error { return none(p.queue().Cancel(ctx, first)) },
			func(ctx context.Context, tx honker.Tx) error { return none(p.queue().CancelTx(ctx, tx, first)) },
		}
	},
	"higher limits": func(p *acting) (wake.Key, change) {
		p.claimedOf(2, honker.Limits{Running: 1})
		return p.key(), change{
			func(ctx context.Context) error { return p.queue().SetLimits(ctx, honker.Limits{Running: 2}) },
			func(ctx context.Context, tx honker.Tx) error {
				return p.queue().SetLimitsTx(ctx, tx, honker.Limits{Running: 2})
			},
		}
	},
	"resume": func(p *acting) (wake.Key, change) {
		require.NoError(p, none(p.queue().Pause(p.Context(), nil)))
		p.enqueue(p.queue())
		return p.key(), change{
			func(ctx context.Context) error { return none(p.queue().Resume(ctx)) },
			func(ctx context.Context, tx honker.Tx) error { return none(p.queue().ResumeTx(ctx, tx)) },
		}
	},
	"shorter pause": func(p *acting) (wake.Key, change) {
		require.NoError(p, none(p.queue().Pause(p.Context(), nil)))
		p.enqueue(p.queue())
		shorter := func() *honker.PauseOptions { return &honker.PauseOptions{Until: time.Now().Add(time.Millisecond)} } // rounded up to a second
		return p.key(), change{
			func(ctx context.Context) error { return none(p.queue().Pause(ctx, shorter())) },
			func(ctx context.Context, tx honker.Tx) error { return none(p.queue().PauseTx(ctx, tx, shorter())) },
		}
	},
	"resume of a key": func(p *acting) (wake.Key, change) {
		require.NoError(p, none(p.queue().Pause(p.Context(), &honker.PauseOptions{Key: "k"})))
		p.enqueue(p.queue(), honker.Key("k"))
		require.Empty(p, func() []*honker.Job[int] { jobs, _ := p.queue().Claim(p.Context(), "w", 1); return jobs }())
		return p.key(), change{
			func(ctx context.Context) error { return none(p.queue().ResumeKey(ctx, "k")) },
			func(ctx context.Context, tx honker.Tx) error { return none(p.queue().ResumeKeyTx(ctx, tx, "k")) },
		}
	},
	"release of a unique key": func(p *acting) (wake.Key, change) {
		again := honker.Unique("k", &honker.Uniqueness{Conflict: honker.RunAgain})
		p.claimed(p.queue(), again)
		p.enqueue(p.queue(), again)
		return p.key(), change{
			func(ctx context.Context) error { return none(p.queue().ReleaseUnique(ctx, "k")) },
			func(ctx context.Context, tx honker.Tx) error { return none(p.queue().ReleaseUniqueTx(ctx, tx, "k")) },
		}
	},
	"ack of an awaited job": func(p *acting) (wake.Key, change) {
		job := p.claimed(p.other())
		p.enqueue(p.queue(), honker.After(job.ID))
		return p.key(), change{job.Ack, job.AckTx}
	},
	"cancel of an awaited job": func(p *acting) (wake.Key, change) {
		id := p.enqueue(p.other())
		p.enqueue(p.queue(), honker.After(id))
		return p.key(), change{
			func(ctx context.Context) error { return none(p.other().Cancel(ctx, id)) },
			func(ctx context.Context, tx honker.Tx) error { return none(p.other().CancelTx(ctx, tx, id)) },
		}
	},
	"cancel": func(p *acting) (wake.Key, change) {
		id := p.enqueue(p.queue())
		return p.jobKey(id), change{
			func(ctx context.Context) error { return none(p.queue().Cancel(ctx, id)) },
			func(ctx context.Context, tx honker.Tx) error { return none(p.queue().CancelTx(ctx, tx, id)) },
		}
	},
	"seal": func(p *acting) (wake.Key, change) {
		b, err := p.db.NewBatch(p.Context(), nil)
		require.NoError(p, err)
		p.enqueue(p.queue(), honker.AfterBatch(b.ID))
		return p.key(), change{b.Seal, b.SealTx}
	},
	"cancel of a batch": func(p *acting) (wake.Key, change) {
		b, err := p.db.NewBatch(p.Context(), nil)
		require.NoError(p, err)
		id := p.enqueue(p.queue(), honker.InBatch(b.ID))
		return p.jobKey(id), change{alone: func(ctx context.Context) error { return none(b.Cancel(ctx)) }}
	},
	"result": func(p *acting) (wake.Key, change) {
		id := p.claimed(p.queue()).ID
		return p.jobKey(id), change{
			func(ctx context.Context) error { return p.queue().SaveResult(ctx, id, 1, time.Hour) },
			func(ctx context.Context, tx honker.Tx) error {
				return p.queue().SaveResultTx(ctx, tx, id, 1, time.Hour)
			},
		}
	},
	"schedule": func(p *acting) (wake.Key, change) {
		s := honker.Schedule{Name: p.name, Queue: p.name, Spec: "@every 1s"}
		p.Cleanup(func() { _, _ = p.db.Scheduler().Unregister(context.Background(), p.name) })
		return wake.Key{Kind: wake.ScheduleDue}, change{
			func(ctx context.Context) error { return p.db.Scheduler().Register(ctx, s) },
			func(ctx context.Context, tx honker.Tx) error { return p.db.Scheduler().RegisterTx(ctx, tx, s) },
		}
	},
	"resume of a schedule": func(p *acting) (wake.Key, change) {
		s := p.db.Scheduler()
		require.NoError(p, s.Register(p.Context(), honker.Schedule{Name: p.name, Queue: p.name, Spec: "@every 1s"}))
		require.NoError(p, none(s.Pause(p.Context(), p.name)))
		p.Cleanup(func() { _, _ = s.Unregister(context.Background(), p.name) })
		return wake.Key{Kind: wake.ScheduleDue}, change{
			func(ctx context.Context) error { return none(s.Resume(ctx, p.name)) },
			func(ctx context.Context, tx honker.Tx) error { return none(s.ResumeTx(ctx, tx, p.name)) },
		}
	},
	"change of a schedule": func(p *acting) (wake.Key, change) {
		s, spec := p.db.Scheduler(), "@every 1s"
		require.NoError(p, s.Register(p.Context(), honker.Schedule{Name: p.name, Queue: p.name, Spec: "@every 1h"}))
		p.Cleanup(func() { _, _ = s.Unregister(context.Background(), p.name) })
		return wake.Key{Kind: wake.ScheduleDue}, change{
			func(ctx context.Context) error {
				return none(s.Update(ctx, p.name, honker.ScheduleChange{Spec: &spec}))
			},
			func(ctx context.Context, tx honker.Tx) error {
				return none(s.UpdateTx(ctx, tx, p.name, honker.ScheduleChange{Spec: &spec}))
			},
		}
	},
	"trigger": func(p *acting) (wake.Key, change) {
		s := p.db.Scheduler()
		require.NoError(p, s.Register(p.Context(), honker.Schedule{Name: p.name, Queue: p.name, Spec: "@every 1h"}))
		p.Cleanup(func() { _, _ = s.Unregister(context.Background(), p.name) })
		return p.key(), change{
			func(ctx context.Context) error { return none(s.Trigger(ctx, p.name)) },
			func(ctx context.Context, tx honker.Tx) error { return none(s.TriggerTx(ctx, tx, p.name)) },
		}
	},
	"notify": func(p *acting) (wake.Key, change) {
		return wake.Key{Kind: wake.ChannelMessage, Name: p.name}, change{
			func(ctx context.Context) error { return none(p.db.Notify(ctx, p.name, 1)) },
			func(ctx context.Context, tx honker.Tx) error { return none(p.db.NotifyTx(ctx, tx, p.name, 1)) },
		}
	},
	"publish": func(p *acting) (wake.Key, change) {
		s := honker.NewStream[int](p.db, p.name, nil)
		return wake.Key{Kind: wake.TopicEvent, Name: p.name}, change{
			func(ctx context.Context) error { return none(s.Publish(ctx, 1)) },
			func(ctx context.Context, tx honker.Tx) error { return none(s.PublishTx(ctx, tx, 1)) },
		}
	},
	"release of a lock": func(p *acting) (wake.Key, change) {
		l, err := p.db.TryLock(p.Context(), p.name, nil)
		require.NoError(p, err)
		return wake.Key{Kind: wake.LockFree, Name: p.name}, change{alone: l.Unlock}
	},
	"return to a group": func(p *acting) (wake.Key, change) {
		d, key := p.delivery(0)
		return key, change{
			func(ctx context.Context) error { return d.Nack(ctx, errWhy) },
			func(ctx context.Context, tx honker.Tx) error { return d.NackTx(ctx, tx, errWhy) },
		}
	},
	"redelivery": func(p *acting) (wake.Key, change) {
		d, key := p.delivery(1)
		require.NoError(p, d.Nack(p.Context(), errWhy))
		g := honker.NewStream[int](p.db, p.name, nil).Group("g", nil)
		return key, change{
			func(ctx context.Context) error { return none(g.Redeliver(ctx, d.Offset)) },
			func(ctx context.Context, tx honker.Tx) error { return none(g.RedeliverTx(ctx, tx, d.Offset)) },
		}
	},
	"run now": func(p *acting) (wake.Key, change) {
		id := p.enqueue(p.queue(), honker.Delay(time.Hour))
		return p.key(), change{alone: func(ctx context.Context) error {
			return none(admin.RunNow(ctx, p.db, admin.JobFilter{IDs: []int64{id}}, nil))
		}}
	},
	"requeue": func(p *acting) (wake.Key, change) {
		job := p.claimed(p.queue(), honker.MaxAttempts(1))
		require.NoError(p, job.Retry(p.Context(), 0, errWhy))
		f := admin.JobFilter{IDs: []int64{job.ID}}
		return p.key(), change{
			func(ctx context.Context) error { return none(admin.Requeue(ctx, p.db, f, nil)) },
			func(ctx context.Context, tx honker.Tx) error { return none(admin.RequeueTx(ctx, p.db, tx, f, nil)) },
		}
	},
	"worker that ends before its job": func(p *acting) (wake.Key, change) {
		stop := p.works(func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		return p.key(), change{alone: stop}
	},
	"worker that ends in a queue with limits": func(p *acting) (wake.Key, change) {
		require.NoError(p, p.queue().SetLimits(p.Context(), honker.Limits{Running: 1}))
		stop := p.works(func(ctx context.Context) error { <-ctx.Done(); return nil })
		p.enqueue(p.queue())
		return p.key(), change{alone: stop}
	},
	"failed attempt of a busy worker": func(p *acting) (wake.Key, change) {
		fail, n := make(chan struct{}), 0
		stop := p.works(func(ctx context.Context) error {
			if n++; n > 1 {
				<-ctx.Done()
				return nil
			}
			select {
			case <-fail:
			case <-ctx.Done():
			}
			return honker.RetryAfter(soon, errWhy)
		})
		p.Cleanup(func() { _ = stop(context.Background()) })
		p.enqueue(p.queue())
		return p.key(), change{alone: func(context.Context) error { close(fail); return nil }}
	},
}

// delivery claims an event of the group g.
func (p *acting) delivery(attempts int) (*honker.Delivery[int], wake.Key) {
	p.Helper()
	s := honker.NewStream[int](p.db, p.name, nil)
	m, err := s.Group("g", &honker.GroupOptions{Lease: time.Hour, MaxAttempts: attempts}).Join(p.Context(), "m")
	require.NoError(p, err)
	_, err = s.Publish(p.Context(), 1)
	require.NoError(p, err)
	all, err := m.Claim(p.Context(), 1)
	require.NoError(p, err)
	require.Len(p, all, 1)
	var id int64
	require.NoError(p, p.pool.QueryRow(p.Context(), pgsql.Schema(p.schema()).SQL(`SELECT id FROM honker.grp WHERE topic = $1`), p.name).Scan(&id))
	return all[0], wake.Key{Kind: wake.GroupReturn, Name: fmt.Sprint(id)}
}

func (p *acting) schema() string {
	return p.pool.Config().ConnConfig.RuntimeParams["application_name"] // set by the test
}

// works starts a worker with a single slot, and returns once it runs a job. stop ends it, without time for its handlers.
func (p *acting) works(handle func(ctx context.Context) error) (stop func(context.Context) error) {
	p.Helper()
	ctx, cancel := context.WithCancel(p.Context())
	runs, ended := make(chan struct{}, 10), make(chan error, 1)
	go func() {
		ended <- p.queue().Work(ctx, func(ctx context.Context, _ *honker.Job[int]) error {
			runs <- struct{}{}
			return handle(ctx)
		}, &honker.WorkOptions{Workers: 1, DrainTimeout: time.Millisecond})
	}()
	p.enqueue(p.queue())
	<-runs
	return func(context.Context) error {
		cancel()
		return <-ended
	}
}

// newWaiting returns a waiter for key of another process.
func newWaiting(p *acting, key wake.Key) *wake.Waiter {
	p.Helper()
	schema := pgsql.Schema(p.schema())
	db, err := honkerpg.Open(p.Context(), pgtest.DSN(p), &honkerpg.Options{Schema: string(schema)})
	require.NoError(p, err)
	p.Cleanup(func() { require.NoError(p, db.Close()) })
	w := engine.Of(db).Notifier.Subscribe(key)
	p.Cleanup(w.Close)
	marker := engine.Of(db).Notifier.Subscribe(wake.Key{Kind: wake.ChannelMessage, Name: "marker"})
	p.Cleanup(marker.Close)
	all := wake.SignalsOf(wake.Change{Kind: key.Kind, Name: key.Name}, wake.Message("marker"))
	if key.Kind == wake.TopicEvent {
		all &^= wake.SignalsOf(wake.Event("a*", "")) // of patterns
	}
	eventually(p.T, func() bool {
		n := 0
		require.NoError(p, p.pool.QueryRow(p.Context(), schema.SQL(`SELECT count(*) FROM honker.process p WHERE p.waits = $1`), int64(all)).Scan(&n))
		return n > 0
	})
	for range 2 { // the looks before the second notice have ended
		require.NoError(p, none(p.db.Notify(p.Context(), "marker", 1)))
		<-marker.C()
	}
	select {
	case <-w.C():
	default:
	}
	return w
}

// Whatever a verb changes for others, alone, in a transaction of DB.Tx or in a transaction of the application, a process
// that waits for it is told. Its next look by itself would be an hour later.
func TestVerbs_AreAnnounced(t *testing.T) {
	pgbackend.OnlyNotices(t)
	schema := pgtest.Schema(t)
	db, err := honkerpg.Open(t.Context(), pgtest.DSN(t), &honkerpg.Options{Schema: schema})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	config, err := pgxpool.ParseConfig(pgtest.DSN(t))
	require.NoError(t, err)
	config.ConnConfig.RuntimeParams["application_name"] = schema
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	forms := map[string]func(ctx context.Context, c change) error{
		"alone": func(ctx context.Context, c change) error { return c.alone(ctx) },
		"in DB.Tx": func(ctx context.Context, c change) error {
			return db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error { return c.within(ctx, tx) })
		},
		"in a pgx.Tx": func(ctx context.Context, c change) error {
			tx, err := pool.Begin(ctx)
			if err != nil {
				return err
			}
			defer tx.Rollback(ctx)
			if err := c.within(ctx, honkerpg.WithTx(tx)); err != nil {
				return err
			}
			return tx.Commit(ctx)
		},
	}
	n := 0
	for name, prepare := range announced {
		for form, run := range forms {
			n++
			own := fmt.Sprint("n", n)
			t.Run(name+" "+form, func(t *testing.T) {
				p := &acting{T: t, db: db, pool: pool, name: own}
				key, c := prepare(p)
				if form == "alone" && c.alone == nil || form != "alone" && c.within == nil {
					return // the verb has no such form
				}
				if testing.Short() && c.within != nil && form != "in a pgx.Tx" {
					return
				}
				w := newWaiting(p, key)
				require.NoError(t, run(t.Context(), c))
				limit, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				require.NoError(t, w.Wait(limit, wake.Forever), "nobody has told the other process")
			})
		}
	}
}
