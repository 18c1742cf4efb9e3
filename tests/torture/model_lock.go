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

// lockModel models several locks that are used by two DBs and, by SQL, by another binding:
//
//   - A lock is free if it has no row, or if its row has expired.
//   - Only the owner in the row can renew the lock, until it expires, or release it.
//   - Tokens increase across all names.
//
// No timed renewal is due within a round.
type lockModel struct {
	*lab
	dbs   []*honker.DB
	rows  map[string]*modelRow
	holds []*modelHold
	token int64
}

// modelRow is the owner and the expiry of a lock.
type modelRow struct {
	owner string
	until int64
}

type modelHold struct {
	*honker.Lock
	unlocked bool
	lost     bool // the result of Unlock
}

func newLockModel(l *lab) (model, error) {
	other, err := l.open()
	return &lockModel{lab: l, dbs: []*honker.DB{l.db, other}, rows: map[string]*modelRow{}}, err
}

func (m *lockModel) verbs() []verb {
	return []verb{
		{"try", 6, m.try}, {"unlock", 3, m.unlock}, {"acquire by SQL", 1, m.acquire}, {"renew by SQL", 2, m.renew},
		{"release by SQL", 1, m.release}, {"advance", 1, m.advance},
	}
}

func (m *lockModel) advance() error {
	return m.pass(`UPDATE _honker_locks SET expires_at = expires_at - ?1`)
}

func (m *lockModel) name() string { return []string{"l0", "l1", "l2", "l3"}[m.Rand.IntN(4)] }

// held returns the row of a name if it has not expired.
func (m *lockModel) held(name string) *modelRow {
	if row := m.rows[name]; row != nil && row.until > m.second() {
		return row
	}
	return nil
}

// try tries to take a lock. Sometimes it calls Lock for a free lock, which must not block.
func (m *lockModel) try() error {
	db, name, free := m.dbs[m.Rand.IntN(2)], m.name(), false
	take := db.TryLock
	if free = m.held(name) == nil; free && m.oneIn(3) {
		take = db.Lock
	}
	l, err := take(m.ctx, name, &honker.LockOptions{TTL: span})
	if err != nil && !errors.Is(err, honker.ErrLockHeld) {
		return err
	}
	if err := m.same(name+" was free", err == nil, free); err != nil || !free {
		return err
	}
	rises := l.Token() > m.token
	m.token = l.Token()
	m.holds = append(m.holds, &modelHold{Lock: l})
	return errors.Join(m.same("token rises", rises, true), m.learn(name, l.Owner()))
}

// learn copies the expiry of a lock that was taken or renewed just now, and checks that it is
// plausible.
func (m *lockModel) learn(name, owner string) error {
	at, err := one[int64](m.ctx, m.db.SQL(), `SELECT expires_at FROM _honker_locks WHERE name = ?`, name)
	m.rows[name] = &modelRow{owner, at + m.passed}
	return errors.Join(err, m.about(name, m.rows[name].until, m.in(span)))
}

// unlock releases a lock. It may have been released before, or have another owner.
func (m *lockModel) unlock() error {
	if len(m.holds) == 0 {
		return nil
	}
	h := anyOf(m.lab, m.holds, 4)
	row := m.rows[h.Name()]
	if !h.unlocked {
		h.unlocked, h.lost = true, row == nil || row.owner != h.Owner()
		if !h.lost {
			delete(m.rows, h.Name())
		}
	}
	err := h.Unlock(m.ctx)
	if err != nil && !errors.Is(err, honker.ErrLockLost) {
		return err
	}
	return m.same("unlock "+h.Name(), err != nil, h.lost)
}

// owner returns the owner in the row, or another.
func (m *lockModel) owner(name string) string {
	if row := m.rows[name]; row != nil && m.oneIn(2) {
		return row.owner
	}
	return fmt.Sprint("binding", m.Rand.IntN(2))
}

func (m *lockModel) ask(function string, args ...any) (bool, error) {
	marks := "?, ?, ?"[:3*len(args)-2]
	return one[bool](m.ctx, m.db.SQL(), `SELECT `+function+`(`+marks+`)`, args...)
}

const spanSeconds = int64(span / time.Second)

// acquire also succeeds for the current owner of the lock.
func (m *lockModel) acquire() error {
	name := m.name()
	owner, held := m.owner(name), m.held(name)
	ok, err := m.ask("honker_lock_acquire", name, owner, spanSeconds)
	if err == nil {
		err = m.same("acquire "+name, ok, held == nil || held.owner == owner)
	}
	if err == nil && held == nil {
		err = m.learn(name, owner)
	}
	return err
}

func (m *lockModel) renew() error {
	name := m.name()
	owner, held := m.owner(name), m.held(name)
	mine := held != nil && held.owner == owner
	ok, err := m.ask("honker_lock_renew", name, owner, spanSeconds)
	if err == nil {
		err = m.same("renew "+name, ok, mine)
	}
	if err == nil && mine {
		err = m.learn(name, owner)
	}
	return err
}

// release also deletes expired rows.
func (m *lockModel) release() error {
	name := m.name()
	owner, row := m.owner(name), m.rows[name]
	mine := row != nil && row.owner == owner
	ok, err := m.ask("honker_lock_release", name, owner)
	if mine {
		delete(m.rows, name)
	}
	if err != nil {
		return err
	}
	return m.same("release "+name, ok, mine)
}

// compare compares all rows, and which locks have ended. It forgets old locks.
func (m *lockModel) compare() error {
	var got, want []string
	err := eachRow(m.ctx, m.db.SQL(), `SELECT name, owner, expires_at FROM _honker_locks ORDER BY name`, func(row []any) {
		got = append(got, fmt.Sprint(row[0], row[1], row[2].(int64)+m.passed))
	})
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(m.rows)) {
		want = append(want, fmt.Sprint(name, m.rows[name].owner, m.rows[name].until))
	}
	err = m.same("all locks", got, want)
	for _, h := range m.holds {
		over := errors.Is(context.Cause(h.Context()), honker.ErrLockLost)
		err = errors.Join(err, m.same("hold of "+h.Name()+" is over", over, h.unlocked))
	}
	m.holds = slices.DeleteFunc(m.holds, func(h *modelHold) bool { return h.unlocked })
	return err
}
