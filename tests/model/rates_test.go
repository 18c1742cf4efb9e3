package model_test

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/testkit"
)

// ratesMachine drives a queue with rates, also of keys, and with pauses that end. While the limits
// are unchanged, at most burst + span/interval jobs may start in any time span. No job of a paused
// key or queue may start.
type ratesMachine struct {
	ctx    context.Context
	q      *honker.Queue[string]
	met    map[string]int
	limits honker.Limits
	until  map[string]time.Time   // ends of pauses by key; "" is the queue
	starts map[string][]time.Time // starts by key since the limits changed; "" is the queue
	claims []*honker.Job[string]
}

var rates = rapid.SampledFrom([]honker.Rate{
	{}, {N: 1, Per: time.Second, Burst: 1}, {N: 3, Per: time.Second, Burst: 2}, {N: 1, Per: 5 * time.Second, Burst: 3}, {N: 7, Per: time.Second, Burst: 1},
})

func (m *ratesMachine) Enqueue(t *rapid.T) {
	key := rapid.SampledFrom([]string{"k", "l"}).Draw(t, "key")
	opts := []honker.EnqueueOption{honker.Key(key), honker.Delay(maybe(t, "delay"))}
	_, err := m.q.EnqueueMany(m.ctx, slices.Repeat([]string{key}, rapid.IntRange(1, 5).Draw(t, "jobs")), opts...)
	require.NoError(t, err)
}

func (m *ratesMachine) SetLimits(t *rapid.T) {
	was := m.limits
	m.limits = honker.Limits{Rate: rates.Draw(t, "rate"), KeyRate: rates.Draw(t, "key rate"), PerKey: bounds.Draw(t, "per key")}
	require.NoError(t, m.q.SetLimits(m.ctx, m.limits))
	for key := range m.starts {
		if key == "" && was.Rate != m.limits.Rate || key != "" && was.KeyRate != m.limits.KeyRate {
			delete(m.starts, key)
		}
	}
}

func (m *ratesMachine) Pause(t *rapid.T) {
	key := limitKeys.Draw(t, "key")
	until := time.Now().Add(spans.Draw(t, "until") + 1)
	_, err := m.q.Pause(m.ctx, &honker.PauseOptions{Key: key, Until: until})
	require.NoError(t, err)
	m.until[key] = until
}

func (m *ratesMachine) Resume(t *rapid.T) {
	key := limitKeys.Draw(t, "key")
	var err error
	if key == "" {
		_, err = m.q.Resume(m.ctx)
	} else {
		_, err = m.q.ResumeKey(m.ctx, key)
	}
	require.NoError(t, err)
	delete(m.until, key)
}

func (m *ratesMachine) Claim(t *rapid.T) {
	jobs, err := m.q.Claim(m.ctx, "w", rapid.IntRange(1, 9).Draw(t, "n"))
	require.NoError(t, err)
	for _, job := range jobs {
		m.started(t, "", m.limits.Rate)
		m.started(t, job.Args, m.limits.KeyRate)
	}
	m.claims = append(m.claims, jobs...)
}

// started records a start and checks it against the rate.
func (m *ratesMachine) started(t *rapid.T, key string, rate honker.Rate) {
	now := time.Now()
	require.False(t, now.Before(m.until[key]), "%q is paused", key)
	m.starts[key] = append(m.starts[key], now)
	if rate.N == 0 {
		return
	}
	m.met["rated "+key]++
	// The starts of a key are stored in whole seconds.
	slack := time.Millisecond
	if key != "" {
		slack = time.Second
	}
	starts := m.starts[key]
	for i, first := range starts {
		most := float64(rate.Burst) + float64(now.Sub(first)+slack)/(float64(rate.Per)/float64(rate.N))
		require.LessOrEqual(t, float64(len(starts)-i), most+0.001, "starts of %q within %v", key, now.Sub(first))
	}
}

func (m *ratesMachine) Settle(t *rapid.T) {
	if len(m.claims) == 0 {
		t.Skip("none is held")
	}
	job := m.claims[0]
	m.claims = m.claims[1:]
	if rapid.Bool().Draw(t, "retry") {
		require.NoError(t, job.Retry(m.ctx, spans.Draw(t, "delay"), testkit.ErrCause))
		return
	}
	require.NoError(t, job.Ack(m.ctx))
}

func (m *ratesMachine) Wait(t *rapid.T) { time.Sleep(spans.Draw(t, "wait")) }

func (m *ratesMachine) Check(*rapid.T) {}

// end handles all jobs with a sleeping worker.
func (m *ratesMachine) end(t *rapid.T) {
	for _, job := range m.claims {
		require.NoError(t, job.Ack(m.ctx))
	}
	ctx, cancel := context.WithTimeout(m.ctx, time.Hour)
	defer cancel()
	go func() {
		for {
			stats, err := m.q.Stats(ctx)
			if err != nil || stats.Ready.N+stats.Scheduled.N+stats.Held.N+stats.Running.N == 0 {
				cancel()
				return
			}
			time.Sleep(time.Second)
		}
	}()
	require.NoError(t, m.q.Work(ctx, func(_ context.Context, job *honker.Job[string]) error {
		m.started(t, "", m.limits.Rate)
		m.started(t, job.Args, m.limits.KeyRate)
		return nil
	}, &honker.WorkOptions{Workers: 1}))
	stats, err := m.q.Stats(m.ctx)
	require.NoError(t, err)
	require.Zero(t, stats.Ready.N+stats.Scheduled.N+stats.Held.N+stats.Running.N, "stranded: %+v", stats)
}

// Jobs start no faster than the rates of their queue and key allow, and all of them start in the
// end.
func TestLimits_Rates_Model(t *testing.T) {
	met := map[string]int{}
	dir, checks := t.TempDir(), 0
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(undated{t}, func(t *rapid.T) {
			db, err := honker.Open(context.Background(), filepath.Join(dir, fmt.Sprint(checks, ".db")),
				&honker.Options{NoFileNotices: true, PollInterval: time.Hour, Logger: slog.New(slog.DiscardHandler)})
			require.NoError(t, err)
			defer db.Close()
			checks++
			startSecond()
			m := &ratesMachine{ctx: context.Background(), met: met, until: map[string]time.Time{}, starts: map[string][]time.Time{}}
			m.q = honker.NewQueue[string](db, "mails", &honker.QueueOptions{Lease: time.Hour * 24})
			actions := rapid.StateMachineActions(m)
			actions["Claim2"] = m.Claim
			t.Repeat(actions)
			require.NoError(t, db.Check(m.ctx))
			m.end(t)
			require.NoError(t, db.Check(m.ctx))
		})
	})
	requireMet(t, met, "rated ", "rated k")
}
