//go:build unix

package torture

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/honker-go/honker"
)

// rateModel models several rate limits by counting the allowed calls of each window. Limits with
// the same name may differ. Each counts in the window of its own length, and windows with the same
// start share a count.
//
// Windows are decades long, and time passes in steps of the longest window, so no window begins or
// ends within a round.
type rateModel struct {
	*lab
	windows map[window]int
}

// window identifies a window by its name and start, in seconds of the file's time.
type window struct {
	name  string
	start int64
}

const decades = 1_000_000_000 // in seconds

func newRateModel(l *lab) (model, error) {
	return &rateModel{lab: l, windows: map[window]int{}}, nil
}

func (m *rateModel) verbs() []verb {
	return []verb{
		{"allow", 6, m.allow}, {"allow in a transaction", 1, m.allowTx}, {"wait", 1, m.wait}, {"try by SQL", 1, m.try},
		{"remaining", 4, m.remaining}, {"sweep", 1, m.sweep}, {"advance", 1, m.advance},
	}
}

// rate is a randomly chosen rate limit.
type rate struct {
	*honker.RateLimit
	window
	limit int
	per   int64
}

func (m *rateModel) rate() rate {
	name, limit, per := fmt.Sprint("r", m.Rand.IntN(3)), []int{1, 2, 3, 7}[m.Rand.IntN(4)], int64(decades>>m.Rand.IntN(3))
	now := time.Now().Unix()
	return rate{m.db.RateLimit(name, limit, time.Duration(per)*time.Second), window{name, now - now%per}, limit, per}
}

// count counts a call if the model allows it, and compares the result.
func (m *rateModel) count(r rate, ok bool, err error) error {
	if err != nil {
		return err
	}
	want := m.windows[r.window] < r.limit
	if want {
		m.windows[r.window]++
	}
	return m.same(fmt.Sprint("allowed by ", r.name, " of ", r.limit), ok, want)
}

func (m *rateModel) allow() error {
	r := m.rate()
	for range 1 + m.Rand.IntN(4) {
		ok, err := r.Allow(m.ctx)
		if err := m.count(r, ok, err); err != nil {
			return err
		}
	}
	return nil
}

// allowTx calls AllowTx in a transaction that may be rolled back.
func (m *rateModel) allowTx() error {
	r, doomed, ok := m.rate(), m.oneIn(2), false
	err := m.db.Tx(m.ctx, func(_ context.Context, tx *sql.Tx) (err error) {
		if ok, err = r.AllowTx(m.ctx, tx); err == nil && doomed {
			err = errOnPurpose
		}
		return err
	})
	if doomed {
		return ignore(err, errOnPurpose)
	}
	return m.count(r, ok, err)
}

// wait calls Wait if the window has room, which must not block.
func (m *rateModel) wait() error {
	r := m.rate()
	if m.windows[r.window] >= r.limit {
		return nil
	}
	return m.count(r, true, r.Wait(m.ctx))
}

func (m *rateModel) try() error {
	r := m.rate()
	ok, err := one[bool](m.ctx, m.db.SQL(), `SELECT honker_rate_limit_try(?, ?, ?)`, r.name, r.limit, r.per)
	return m.count(r, ok, err)
}

func (m *rateModel) remaining() error {
	r := m.rate()
	left, end, err := r.Remaining(m.ctx)
	if err != nil {
		return err
	}
	return m.same("remaining of "+r.name, []int64{int64(left), end.Unix()}, []int64{int64(max(0, r.limit-m.windows[r.window])), r.start + r.per})
}

// sweep deletes windows that began before a certain age. Until 2031, no window begins exactly at
// the limit.
func (m *rateModel) sweep() error {
	age := int64(decades/5 + m.Rand.IntN(4)*decades/2)
	want := 0
	for w := range m.windows {
		if w.start < time.Now().Unix()-age {
			delete(m.windows, w)
			want++
		}
	}
	got, err := m.db.SweepRateLimits(m.ctx, time.Duration(age)*time.Second)
	if err != nil {
		return err
	}
	return m.same("swept", got, want)
}

func (m *rateModel) advance() error {
	moved := map[window]int{}
	for w, n := range m.windows {
		moved[window{w.name, w.start - decades}] = n
	}
	m.windows = moved
	const far = 1 << 50 // moves windows in two steps, to avoid conflicts between their keys
	for _, by := range []int64{far, -far - decades} {
		if _, err := m.db.SQL().ExecContext(m.ctx, `UPDATE _honker_rate_limits SET window_start = window_start + ?`, by); err != nil {
			return err
		}
	}
	return nil
}

func (m *rateModel) compare() error {
	got := map[window]int{}
	err := eachRow(m.ctx, m.db.SQL(), `SELECT name, window_start, count FROM _honker_rate_limits`, func(row []any) {
		got[window{row[0].(string), row[1].(int64)}] = int(row[2].(int64))
	})
	if err != nil {
		return err
	}
	return m.same("windows", got, m.windows)
}
