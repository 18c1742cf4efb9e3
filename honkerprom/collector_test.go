package honkerprom_test

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkerprom"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
)

// A scrape reports the state of the database.
func TestCollector_State(t *testing.T) {
	honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
		ctx, mails := t.Context(), honker.NewQueue[int](db, "mails", nil)
		_, err := mails.EnqueueMany(ctx, make([]int, 4))
		require.NoError(t, err)
		_, err = mails.Enqueue(ctx, 1, honker.Delay(time.Hour))
		require.NoError(t, err)
		job := testkit.Claim(t, mails, 1)[0]
		require.NoError(t, job.Reject(ctx, testkit.ErrCause))
		testkit.Claim(t, mails, 1)
		_, err = honker.NewQueue[int](db, "quiet", nil).Pause(ctx, nil)
		require.NoError(t, err)

		orders := honker.NewStream[int](db, "orders", nil)
		testkit.PublishUpTo(t, orders, 10)
		_, err = orders.SaveOffset(ctx, "audit", 4)
		require.NoError(t, err)
		m, err := orders.Group("packers", &honker.GroupOptions{MaxAttempts: 1}).Join(ctx, "ada")
		require.NoError(t, err)
		held, err := m.Claim(ctx, 2)
		require.NoError(t, err)
		require.NoError(t, held[0].Nack(ctx, testkit.ErrCause))
		for _, name := range []string{"tea", "off"} {
			require.NoError(t, db.Scheduler().Register(ctx, honker.Schedule{Name: name, Queue: "tea", Spec: "@every 1h"}))
		}
		_, err = db.Scheduler().Pause(ctx, "off")
		require.NoError(t, err)
		stop := testkit.Background(t, func(ctx context.Context) error { return db.Scheduler().Run(ctx) })
		defer func() { require.NoError(t, stop()) }()
		time.Sleep(10 * time.Second)

		values := scrape(t, registered(honkerprom.New(db, nil)))
		for _, name := range []string{"honker_file_bytes", "honker_wal_bytes", "honker_disk_free_bytes"} {
			require.Positive(t, values[name], name)
			delete(values, name)
		}
		require.Len(t, only(values, "honker_build_info"), 1)
		for name := range only(values, "honker_build_info") {
			delete(values, name)
		}
		require.Equal(t, map[string]float64{
			`honker_queue_jobs{phase="ready",queue="mails"}`:               2,
			`honker_queue_jobs{phase="scheduled",queue="mails"}`:           1,
			`honker_queue_jobs{phase="running",queue="mails"}`:             1,
			`honker_queue_jobs{phase="dead",queue="mails"}`:                1,
			`honker_queue_oldest_ready_seconds{queue="mails"}`:             10,
			`honker_queue_paused{queue="quiet"}`:                           1,
			`honker_queue_died_last_hour{queue="mails"}`:                   1,
			`honker_queue_workers{queue="mails"}`:                          1,
			`honker_stream_head{topic="orders"}`:                           10,
			`honker_consumer_lag_events{consumer="audit",topic="orders"}`:  6,
			`honker_consumer_lag_seconds{consumer="audit",topic="orders"}`: 10,
			`honker_group_lag_events{group="packers",topic="orders"}`:      8,
			`honker_group_lag_seconds{group="packers",topic="orders"}`:     10,
			`honker_group_dead_events{group="packers",topic="orders"}`:     1,
			`honker_schedule_next_fire_timestamp_seconds{schedule="tea"}`:  float64(time.Now().Unix() + 3590),
			`honker_leader{role="scheduler"}`:                              1,
			`honker_problems{code="dead",severity="warn"}`:                 1,
		}, nonZero(values))
		require.Contains(t, values, `honker_leader{role="maintenance"}`)
		require.Contains(t, values, `honker_problems{code="wal",severity="warn"}`)
		require.Contains(t, values, `honker_queue_jobs{phase="lapsed",queue="mails"}`)
		require.Contains(t, values, `honker_queue_oldest_ready_seconds{queue="quiet"}`)
		require.Contains(t, values, `honker_queue_workers{queue="quiet"}`, "0 can be asked for")
		require.Contains(t, values, "honker_queues_folded")
		require.Contains(t, values, `honker_scrape_stale_seconds{part="queues"}`)
	})
}

// The longest run of a queue and the last fire of a schedule are reported.
func TestCollector_LastFireAndLongestRun(t *testing.T) {
	honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
		ctx, mails := t.Context(), honker.NewQueue[int](db, "mails", nil)
		testkit.Enqueue(t, mails, 1)
		job := testkit.ClaimOne(t, mails)
		for _, name := range []string{"tea", "never"} {
			require.NoError(t, db.Scheduler().Register(ctx, honker.Schedule{Name: name, Queue: "tea", Spec: "@every 1h"}))
		}
		_, err := db.Scheduler().Trigger(ctx, "tea")
		require.NoError(t, err)
		fired := time.Now().Unix()
		time.Sleep(time.Minute)
		require.NoError(t, job.Extend(ctx, time.Hour))
		values := scrape(t, registered(honkerprom.New(db, nil)))
		require.EqualValues(t, 60, values[`honker_queue_oldest_running_seconds{queue="mails"}`])
		require.Equal(t, map[string]float64{`honker_schedule_last_fire_timestamp_seconds{schedule="tea"}`: float64(fired)},
			only(values, "honker_schedule_last_fire"))
	})
}

func nonZero(values map[string]float64) map[string]float64 {
	some := map[string]float64{}
	for name, v := range values {
		if v != 0 {
			some[name] = v
		}
	}
	return some
}

// A job that is cancelled while it is running counts toward its queue's slots.
func TestCollector_CancelledPlaces(t *testing.T) {
	db := honkertest.Open(t, nil)
	q := honker.NewQueue[int](db, "mails", nil)
	require.NoError(t, q.SetLimits(t.Context(), honker.Limits{Running: 1}))
	id := testkit.Enqueue(t, q, 1)
	testkit.ClaimOne(t, q)
	testkit.Enqueue(t, q, 2) // a queue without jobs has no metrics
	_, err := q.Cancel(t.Context(), id)
	require.NoError(t, err)
	require.EqualValues(t, 1, scrape(t, registered(honkerprom.New(db, nil)))[`honker_queue_cancelled_places{queue="mails"}`])
}

// A count that has reached its limit is reported as capped.
func TestCollector_Capped(t *testing.T) {
	db := honkertest.Open(t, &honker.Options{CountLimit: 3})
	_, err := honker.NewQueue[int](db, "mails", nil).EnqueueMany(t.Context(), make([]int, 10))
	require.NoError(t, err)
	testkit.Enqueue(t, honker.NewQueue[int](db, "few", nil), 1)
	values := scrape(t, registered(honkerprom.New(db, nil)))
	require.EqualValues(t, 3, values[`honker_queue_jobs{phase="ready",queue="mails"}`])
	require.Equal(t, map[string]float64{
		`honker_queue_jobs_capped{queue="mails"}`: 1, `honker_queue_jobs_capped{queue="few"}`: 0,
	}, only(values, "honker_queue_jobs_capped"))
}

// Queues with the same label are added up, and the longest wait is reported.
func TestCollector_QueueLabel(t *testing.T) {
	honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
		for i := range 5 {
			testkit.Enqueue(t, honker.NewQueue[int](db, fmt.Sprintf("tenant-%d", i), nil), 1)
			time.Sleep(time.Second)
		}
		fold := func(queue string) string { return strings.TrimRight(queue, "-0123456789") }
		values := scrape(t, registered(honkerprom.New(db, &honkerprom.Options{QueueLabel: fold})))
		require.Equal(t, map[string]float64{
			`honker_queue_jobs{phase="ready",queue="tenant"}`:   5,
			`honker_queue_oldest_ready_seconds{queue="tenant"}`: 5,
		}, nonZero(only(values, "honker_queue")))
	})
}

// The number of labels of each kind is limited. Existing labels are kept.
func TestCollector_MaxQueues(t *testing.T) {
	honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
		add := func(names ...string) {
			for _, name := range names {
				testkit.Enqueue(t, honker.NewQueue[int](db, name, nil), 1)
				s := honker.NewStream[int](db, name, nil)
				testkit.Publish(t, s, 1)
				_, err := s.SaveOffset(t.Context(), "audit", 0)
				require.NoError(t, err)
			}
		}
		add("m", "n")
		reg := registered(honkerprom.New(db, &honkerprom.Options{MaxQueues: 2}))
		scrape(t, reg)
		add("a", "z")
		values := scrape(t, reg)
		require.Equal(t, map[string]float64{
			`honker_queue_jobs{phase="ready",queue="m"}`:      1,
			`honker_queue_jobs{phase="ready",queue="n"}`:      1,
			`honker_queue_jobs{phase="ready",queue="_other"}`: 2,
		}, only(values, `honker_queue_jobs{phase="ready"`))
		require.Equal(t, map[string]float64{
			`honker_consumer_lag_events{consumer="audit",topic="m"}`:       1,
			`honker_consumer_lag_events{consumer="audit",topic="n"}`:       1,
			`honker_consumer_lag_events{consumer="_other",topic="_other"}`: 2,
		}, only(values, `honker_consumer_lag_events`))
		require.Len(t, only(values, "honker_stream_head"), 3)
	})
}

// With more queues than labels, those with dead, running or ready jobs or with traffic keep their names. Labels that
// are assigned stay.
func TestCollector_HeavyQueuesKeepNames(t *testing.T) {
	honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
		for i := range 20 {
			testkit.Enqueue(t, honker.NewQueue[int](db, fmt.Sprintf("a%02d", i), nil), 1)
		}
		add := func(name string, jobs int) {
			_, err := honker.NewQueue[int](db, name, nil).EnqueueMany(t.Context(), make([]int, jobs))
			require.NoError(t, err)
		}
		add("ready", 5)
		add("dead", 4)
		for _, job := range testkit.Claim(t, honker.NewQueue[int](db, "dead", nil), 4) {
			require.NoError(t, job.Reject(t.Context(), testkit.ErrCause))
		}
		busy := honker.NewQueue[int](db, "traffic", nil)
		add("traffic", 50)
		_, err := busy.WorkDue(t.Context(), testkit.Succeed[int], nil)
		require.NoError(t, err)
		add("traffic", 1)
		time.Sleep(time.Minute)

		reg := registered(honkerprom.New(db, &honkerprom.Options{MaxQueues: 3}))
		values := scrape(t, reg)
		require.Equal(t, map[string]float64{
			`honker_queue_jobs{phase="ready",queue="ready"}`:   5,
			`honker_queue_jobs{phase="ready",queue="dead"}`:    0,
			`honker_queue_jobs{phase="ready",queue="traffic"}`: 1,
			`honker_queue_jobs{phase="ready",queue="_other"}`:  20,
		}, only(values, `honker_queue_jobs{phase="ready"`))
		require.EqualValues(t, 20, values["honker_queues_folded"])

		add("a00", 100)
		values = scrape(t, reg)
		require.EqualValues(t, 120, values[`honker_queue_jobs{phase="ready",queue="_other"}`])
		require.Contains(t, values, `honker_queue_jobs{phase="ready",queue="dead"}`)
	})
}

// A name that is not valid UTF-8, as other bindings may write, is converted to a valid label.
func TestCollector_NoUTF8(t *testing.T) {
	testkit.FileOnly(t)
	db := honkertest.Open(t, nil)
	testkit.Exec(t, db, `INSERT INTO _honker_live (queue, payload, run_at) VALUES (CAST(x'6dff' AS TEXT), '1', 0)`)
	values := scrape(t, registered(honkerprom.New(db, nil)))
	require.EqualValues(t, 1, values["honker_queue_jobs{phase=\"ready\",queue=\"m\uFFFD\"}"])
	testkit.Exec(t, db, `DELETE FROM _honker_live`)
}

// gated returns a collector whose reads block until gate is closed or sent to. It counts the reads.
func gated(db *honker.DB, log *slog.Logger) (c *honkerprom.Collector, gate chan struct{}, looks *atomic.Int32) {
	gate, looks = make(chan struct{}), new(atomic.Int32)
	return honkerprom.New(db, &honkerprom.Options{Logger: log, QueueLabel: func(queue string) string {
		looks.Add(1)
		<-gate
		return queue
	}}), gate, looks
}

// A scrape does not wait for a slow read. It returns the last values and their age.
func TestCollector_Deadline(t *testing.T) {
	honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
		q := honker.NewQueue[int](db, "mails", nil)
		testkit.Enqueue(t, q, 1)
		c, gate, looks := gated(db, nil)
		reg := registered(c)
		go func() { gate <- struct{}{} }()
		ready, stale := `honker_queue_jobs{phase="ready",queue="mails"}`, `honker_scrape_stale_seconds{part="queues"}`
		require.EqualValues(t, 1, scrape(t, reg)[ready])

		testkit.Enqueue(t, q, 2)
		began := time.Now()
		for i := 1; i <= 3; i++ {
			values := scrape(t, reg)
			require.Equal(t, time.Duration(i)*time.Second, time.Since(began))
			require.EqualValues(t, 1, values[ready])
			require.EqualValues(t, i, values[stale])
		}
		require.EqualValues(t, 2, looks.Load(), "scrapes share the look that hangs")
		gate <- struct{}{}
		synctest.Wait()
		values := scrape(t, reg)
		require.EqualValues(t, 2, values[ready])
		require.EqualValues(t, 3, values[stale], "when the look began")
		close(gate)
	})
}

// Ten concurrent scrapes share a read.
func TestCollector_ScrapesShare(t *testing.T) {
	honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
		testkit.Enqueue(t, honker.NewQueue[int](db, "mails", nil), 1)
		c, gate, looks := gated(db, nil)
		reg := registered(c)
		var stops []func() error
		for range 10 {
			stops = append(stops, testkit.Background(t, func(context.Context) error { _, err := reg.Gather(); return err }))
		}
		synctest.Wait()
		close(gate)
		for _, stop := range stops {
			require.NoError(t, stop())
		}
		require.EqualValues(t, 1, looks.Load())
	})
}

// The result of a slow read is kept for twenty times as long as the read took.
func TestCollector_KeepsLongLooks(t *testing.T) {
	honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
		testkit.Enqueue(t, honker.NewQueue[int](db, "mails", nil), 1)
		looks, takes := 0, 100*time.Millisecond
		reg := registered(honkerprom.New(db, &honkerprom.Options{QueueLabel: func(queue string) string {
			looks++
			time.Sleep(takes)
			return queue
		}}))
		for range 20 { // two seconds
			scrape(t, reg)
			time.Sleep(100 * time.Millisecond)
		}
		require.Equal(t, 1, looks)
		takes = 5 * time.Millisecond
		for range 3 {
			time.Sleep(100 * time.Millisecond)
			scrape(t, reg)
		}
		require.Equal(t, 4, looks, "short ones are taken each time")
	})
}

// A part that can't be read keeps its values, whose age increases. The failure is logged once.
func TestCollector_FailedLook(t *testing.T) {
	honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
		testkit.Enqueue(t, honker.NewQueue[int](db, "mails", nil), 1)
		log, fails := new(testkit.Log), false
		reg := registered(honkerprom.New(db, &honkerprom.Options{
			Logger: slog.New(slog.NewTextHandler(log, nil)),
			QueueLabel: func(queue string) string {
				if fails {
					panic("no label")
				}
				return queue
			},
		}))
		scrape(t, reg)
		fails = true
		ready, stale := `honker_queue_jobs{phase="ready",queue="mails"}`, `honker_scrape_stale_seconds{part="queues"}`
		for range 3 {
			time.Sleep(time.Minute)
			require.EqualValues(t, 1, scrape(t, reg)[ready])
		}
		values := scrape(t, reg)
		require.EqualValues(t, 180, values[stale])
		require.Zero(t, values[`honker_scrape_stale_seconds{part="file"}`], "the other parts are new")
		require.Equal(t, 1, log.Times(`metrics could not be read; keeping the last values" part=queues error="panic: no label"`))
		fails = false
		require.Zero(t, scrape(t, reg)[stale])
		require.NoError(t, db.Close())
		time.Sleep(time.Minute)
		values = scrape(t, reg)
		require.EqualValues(t, 1, values[ready])
		require.EqualValues(t, 60, values[stale])
		require.Equal(t, 1, log.Times(`part=queues error="honker: list queues: `), log)
	})
}

// Read waits for the values and returns the error of a part that cannot be read.
func TestCollector_Read(t *testing.T) {
	honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
		testkit.Enqueue(t, honker.NewQueue[int](db, "mails", nil), 1)
		c, gate, _ := gated(db, nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.ErrorIs(t, c.Read(ctx), context.DeadlineExceeded)
		time.AfterFunc(time.Minute, func() { close(gate) })
		require.NoError(t, c.Read(t.Context()))
		require.EqualValues(t, 1, scrape(t, registered(c))[`honker_queue_jobs{phase="ready",queue="mails"}`])
		require.NoError(t, db.Close())
		require.ErrorIs(t, c.Read(t.Context()), honker.ErrClosed)
	})
}

// A collector whose database is opened again keeps its labels.
func TestCollector_Reopen(t *testing.T) {
	testkit.FileOnly(t)
	path := filepath.Join(t.TempDir(), "app.db")
	db := honkertest.OpenFile(t, path, nil)
	testkit.Enqueue(t, honker.NewQueue[int](db, "z", nil), 1)
	c := honkerprom.New(db, &honkerprom.Options{MaxQueues: 1})
	require.NoError(t, c.Read(t.Context()))
	require.NoError(t, db.Close())

	db = honkertest.OpenFile(t, path, nil)
	_, err := honker.NewQueue[int](db, "a", nil).EnqueueMany(t.Context(), make([]int, 10))
	require.NoError(t, err)
	c.Reopen(nil)
	require.ErrorIs(t, c.Read(t.Context()), honker.ErrClosed)
	c.Reopen(db)
	require.NoError(t, c.Read(t.Context()))
	values := scrape(t, registered(c))
	require.EqualValues(t, 1, values[`honker_queue_jobs{phase="ready",queue="z"}`])
	require.EqualValues(t, 10, values[`honker_queue_jobs{phase="ready",queue="_other"}`])
}

// New panics for a nil DB.
func TestNew_NilDB(t *testing.T) {
	require.Panics(t, func() { honkerprom.New(nil, nil) })
}
