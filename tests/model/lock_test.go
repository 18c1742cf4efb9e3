package model_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
)

// lockModel models a lock:
//
//   - It is free if it has no row, or if its row has expired.
//   - A row of this process is renewed. It does not expire until it is unlocked.
//   - If another connection has modified the row, the lock is lost. The holder notices at the next
//     renewal or when it unlocks, and then leaves the row alone.
//   - Tokens increase.
type lockModel struct {
	owner   string // "": no row
	expires time.Time
	ours    *lease // the lease that owns the row; nil if another binding owns it
	token   int64
	met     map[string]int
}

// lease is a Lock with its expected state.
type lease struct {
	*honker.Lock
	third    time.Duration
	unlocked bool
	robbed   time.Time // when its row was modified
}

func (m *lockModel) free() bool {
	return m.owner == "" || m.ours == nil && !m.expires.After(time.Now())
}

func (m *lockModel) take(owner string, ours *lease, expires time.Time) {
	m.owner, m.ours, m.expires = owner, ours, expires
}

// lockMachine drives a lock and its model.
type lockMachine struct {
	lockModel
	db    *honker.DB
	name  string
	holds []*lease // all locks ever taken
}

func (m *lockMachine) TryLock(t *rapid.T) {
	ttl := rapid.SampledFrom([]time.Duration{time.Nanosecond, time.Second, 2500 * time.Millisecond, 9 * time.Second}).Draw(t, "ttl")
	l, err := m.db.TryLock(context.Background(), m.name, &honker.LockOptions{TTL: ttl})
	if !m.free() {
		require.ErrorIs(t, err, honker.ErrLockHeld)
		m.met["held"]++
		return
	}
	require.NoError(t, err)
	m.got(t, l, ttl)
}

func (m *lockMachine) got(t *rapid.T, l *honker.Lock, ttl time.Duration) {
	require.Greater(t, l.Token(), m.token)
	h := &lease{Lock: l, third: max(ttl, time.Second) / 3}
	m.token, m.holds = l.Token(), append(m.holds, h)
	m.take(l.Owner(), h, time.Time{})
	m.met["taken"]++
}

// Lock waits for a lock that will expire.
func (m *lockMachine) Lock(t *rapid.T) {
	limit := time.Duration(rapid.IntRange(1, 8).Draw(t, "limit"))*time.Second + 7*time.Millisecond // avoids a tie with an expiry
	free := m.free()
	comes := m.ours == nil && m.expires.Before(time.Now().Add(limit))
	began, end := time.Now(), m.expires
	// Cancelling ctx after Lock has returned would also cancel the lock's context, so only the wait
	// is limited.
	ctx, cancel := context.WithCancel(context.Background())
	stop := time.AfterFunc(limit, cancel).Stop
	l, err := m.db.Lock(ctx, m.name, nil)
	stop()
	if !free && !comes {
		require.ErrorIs(t, err, context.Canceled)
		m.met["gave up"]++
		return
	}
	require.NoError(t, err)
	m.got(t, l, time.Minute)
	if !free {
		require.Equal(t, end.Sub(began), time.Since(began))
		m.met["waited"]++
	}
}

func (m *lockMachine) Unlock(t *rapid.T) {
	if len(m.holds) == 0 {
		t.Skip("no hold yet")
	}
	m.unlock(t, rapid.SampledFrom(m.holds).Draw(t, "hold"))
}

func (m *lockMachine) unlock(t *rapid.T, h *lease) {
	err := h.Lock.Unlock(context.Background())
	if !h.robbed.IsZero() {
		require.ErrorIs(t, err, honker.ErrLockLost)
		m.met["lost"]++
		return
	}
	require.NoError(t, err)
	if !h.unlocked {
		m.take("", nil, time.Time{})
		m.met["unlocked"]++
	}
	h.unlocked = true
}

// Binding tries to take the lock as another binding would.
func (m *lockMachine) Binding(t *rapid.T) {
	expires := round(time.Now(), time.Second, 0).Add(time.Duration(rapid.IntRange(1, 5).Draw(t, "ttl")) * time.Second)
	exec(t, m.db, on(`DELETE FROM _honker_locks WHERE name = $1 AND expires_at <= $2`,
		`DELETE FROM lock WHERE name = $1 AND expires_at <= to_timestamp($2::bigint)`), m.name, time.Now().Unix())
	n := exec(t, m.db, on(`INSERT OR IGNORE INTO _honker_locks VALUES ($1, 'binding', $2)`,
		`INSERT INTO lock VALUES ($1, 'binding', to_timestamp($2::bigint)) ON CONFLICT DO NOTHING`), m.name, expires.Unix())
	require.Equal(t, m.free(), n == 1)
	if n == 1 {
		m.take("binding", nil, expires)
	}
}

// Rob modifies or deletes the row, whoever owns it.
func (m *lockMachine) Rob(t *rapid.T) {
	if m.owner == "" {
		t.Skip("no row")
	}
	if m.ours != nil {
		m.ours.robbed = time.Now()
		m.met["robbed"]++
	}
	expires := round(time.Now(), time.Second, 0).Add(time.Duration(rapid.IntRange(-1, 5).Draw(t, "for")) * time.Second)
	if rapid.Bool().Draw(t, "remove") {
		exec(t, m.db, on(`DELETE FROM _honker_locks WHERE name = $1`, `DELETE FROM lock WHERE name = $1`), m.name)
		m.take("", nil, time.Time{})
		return
	}
	exec(t, m.db, on(`UPDATE _honker_locks SET owner = 'thief', expires_at = $1 WHERE name = $2`,
		`UPDATE lock SET owner = 'thief', expires_at = to_timestamp($1::bigint) WHERE name = $2`), expires.Unix(), m.name)
	m.take("thief", nil, expires)
}

func (m *lockMachine) Advance(t *rapid.T) { time.Sleep(spans.Draw(t, "for")) }

// Check compares the observable state.
func (m *lockMachine) Check(t *rapid.T) {
	synctest.Wait() // completes the renewals that are due
	owner, expires := "", int64(0)
	err := m.db.SQL().QueryRow(on(`SELECT owner, expires_at FROM _honker_locks WHERE name = $1`,
		`SELECT owner, ceil(extract(epoch FROM expires_at))::bigint FROM lock WHERE name = $1`), m.name).Scan(&owner, &expires)
	require.True(t, err == nil || errors.Is(err, sql.ErrNoRows), err)
	require.Equal(t, m.owner, owner)
	if m.ours != nil {
		require.Greater(t, expires, time.Now().Unix(), "it is renewed in time")
	}
	for _, h := range m.holds {
		ended := h.Context().Err() != nil
		switch {
		case h.unlocked:
			require.True(t, ended)
		case h.robbed.IsZero():
			require.False(t, ended)
		case time.Since(h.robbed) > h.third:
			require.True(t, ended, "lost at the next renewal")
		}
		if ended {
			require.ErrorIs(t, context.Cause(h.Context()), honker.ErrLockLost)
		}
	}
}

// TestLock_Model compares random operations on a lock with the model.
func TestLock_Model(t *testing.T) {
	met := map[string]int{}
	synctest.Test(t, func(t *testing.T) {
		db := honkertest.Open(t, &honker.Options{NoFileNotices: true, PollInterval: time.Hour, Logger: slog.New(slog.DiscardHandler)})
		checks := 0
		rapid.Check(undated{t}, func(t *rapid.T) {
			checks++
			m := &lockMachine{db: db, name: fmt.Sprint("lock", checks), lockModel: lockModel{met: met}}
			actions := rapid.StateMachineActions(m)
			actions["Unlock more"], actions["TryLock more"] = m.Unlock, m.TryLock
			for range 4 { // rapid runs few steps per Repeat
				t.Repeat(actions)
			}
			for _, h := range m.holds {
				m.unlock(t, h)
			}
		})
	})
	requireMet(t, met, "taken", "held", "waited", "gave up", "unlocked", "robbed", "lost")
}

// rateMachine drives a rate limit and counts the allowed calls of each window.
type rateMachine struct {
	db      *honker.DB
	name    string
	per     time.Duration // as passed to RateLimit
	windows map[int64]int // by start time
	met     map[string]int
}

var limits = rapid.SampledFrom([]int{1, 2, 3, 7})

// length returns the length of a window in seconds.
func (m *rateMachine) length() int64 { return int64((m.per + time.Second - 1) / time.Second) }

func (m *rateMachine) start() int64 {
	now := time.Now().Unix()
	return now - now%m.length()
}

// count records a call and checks whether it should have been allowed.
func (m *rateMachine) count(t *rapid.T, limit int, ok bool) {
	require.Equal(t, m.windows[m.start()] < limit, ok)
	if ok {
		m.windows[m.start()]++
	}
	m.met[fmt.Sprint(ok)]++
}

func (m *rateMachine) Allow(t *rapid.T) {
	limit := limits.Draw(t, "limit")
	for range rapid.IntRange(1, 4).Draw(t, "calls") {
		ok, err := m.db.RateLimit(m.name, limit, m.per).Allow(context.Background())
		require.NoError(t, err)
		m.count(t, limit, ok)
	}
}

// Wait returns at once if the window has room, or at the beginning of the next window.
func (m *rateMachine) Wait(t *rapid.T) {
	limit := limits.Draw(t, "limit")
	want := time.Now()
	if m.windows[m.start()] >= limit {
		want = time.Unix(m.start()+m.length(), 0)
		m.met["waited"]++
	}
	require.NoError(t, m.db.RateLimit(m.name, limit, m.per).Wait(context.Background()))
	require.True(t, want.Equal(time.Now()), "%v instead of %v", time.Now(), want)
	m.count(t, limit, true)
}

func (m *rateMachine) Sweep(t *rapid.T) {
	age := time.Duration(rapid.Int64Range(m.length(), 3*m.length()).Draw(t, "age")) * time.Second
	_, err := m.db.SweepRateLimits(context.Background(), age) // also affects other names
	require.NoError(t, err)
	for start := range m.windows {
		if time.Unix(start, 0).Before(round(time.Now().Add(-age), unit(), 0)) {
			delete(m.windows, start)
			m.met["swept"]++
		}
	}
}

func (m *rateMachine) Advance(t *rapid.T) { time.Sleep(spans.Draw(t, "for")) }

func (m *rateMachine) Check(t *rapid.T) {
	left, end, err := m.db.RateLimit(m.name, 5, m.per).Remaining(context.Background())
	require.NoError(t, err)
	require.Equal(t, max(0, 5-m.windows[m.start()]), left)
	require.Equal(t, m.start()+m.length(), end.Unix())
	rows, err := m.db.SQL().Query(on(`SELECT window_start, count FROM _honker_rate_limits WHERE name = $1`,
		`SELECT extract(epoch FROM window_start)::bigint, count FROM rate WHERE name = $1`), m.name)
	require.NoError(t, err)
	defer rows.Close()
	stored := map[int64]int{}
	for rows.Next() {
		var start int64
		var n int
		require.NoError(t, rows.Scan(&start, &n))
		stored[start] = n
	}
	require.Equal(t, m.windows, stored)
}

// TestRateLimit_Model compares random calls to a rate limit with the model.
func TestRateLimit_Model(t *testing.T) {
	met := map[string]int{}
	synctest.Test(t, func(t *testing.T) {
		db := honkertest.Open(t, &honker.Options{NoFileNotices: true, PollInterval: time.Hour})
		checks := 0
		rapid.Check(undated{t}, func(t *rapid.T) {
			checks++
			m := &rateMachine{db: db, name: fmt.Sprint("rate", checks), windows: map[int64]int{}, met: met}
			m.per = rapid.SampledFrom([]time.Duration{1, time.Second, 1500 * time.Millisecond, 7 * time.Second}).Draw(t, "per")
			for range 4 {
				t.Repeat(rapid.StateMachineActions(m))
			}
		})
	})
	requireMet(t, met, "true", "false", "waited", "swept")
}
