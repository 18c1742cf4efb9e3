package honker

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/honker-go/honker/internal/store"
)

// Member is one who takes events of a group. It is safe for concurrent use.
//
// A member stays while it claims or ranges over All. One that is silent for a Lease has
// left: its name is free, but its next claim brings it back if nobody took that.
type Member[E any] struct{ m *member }

// member is a Member without its type.
type member struct {
	g      *group
	id     int64 // of the group, which may be deleted and made again under the same name
	who    store.Member
	touch  atomic.Int64 // unix milliseconds: when to say again that it is there
	topics []topic
}

// Join makes the group if there is none, and member one of its members. Each needs a name
// of its own; one that was killed keeps its name for a Lease, so that a fixed one, such as
// the host's, makes a quick restart wait. [ErrMemberTaken]: somebody alive has that name.
func (g *Group[E]) Join(ctx context.Context, member string) (*Member[E], error) {
	m, err := g.g.join(ctx, member)
	if err != nil {
		return nil, fail("join group", g.g.name, err)
	}
	return &Member[E]{m}, nil
}

func (g *group) join(ctx context.Context, name string) (*member, error) {
	if err := errors.Join(g.usable(), checkName("member", name)); err != nil {
		return nil, err
	}
	m := &member{g: g, who: store.Member{Name: name, Instance: rand.Text()}}
	err := g.s.db.do(ctx, "", write(m.enter))
	if err != nil {
		return nil, err
	}
	m.topics = []topic{{streamTopic, g.s.name}, {groupReturn, groupKey(m.id)}}
	return m, nil
}

func groupKey(id int64) string { return strconv.FormatInt(id, 10) }

func (m *member) enter(ctx context.Context, q store.Querier, now time.Time) error {
	row, err := store.Groups{}.Get(ctx, q, m.g.s.name, m.g.name)
	begin := row.Cursor
	if errors.Is(err, ErrNotFound) {
		begin, err = m.g.opts.From.resolve(ctx, q, m.g.s.selection(nil))
	}
	if err != nil {
		return err
	}
	if row, err = (store.Groups{}).Add(ctx, q, m.g.s.name, m.g.name, begin, m.g.filter, now.UnixMilli()); err != nil {
		return err
	}
	m.id, m.who.Group = row.ID, row.ID
	if err := (store.Groups{}).DropSilent(ctx, q, m.id, now.UnixMilli()); err != nil {
		return err
	}
	return m.stay(ctx, q, now)
}

// stay says, from time to time, that the member is there.
func (m *member) stay(ctx context.Context, q store.Querier, now time.Time) error {
	if now.UnixMilli() < m.touch.Load() {
		return nil
	}
	ours, err := store.Groups{}.TouchMember(ctx, q, m.who, now.UnixMilli(), m.deadline(now))
	if err == nil && !ours {
		err = ErrMemberTaken
	}
	if err == nil {
		m.touch.Store(now.Add(m.g.opts.Lease / 3).UnixMilli())
	}
	return err
}

// remain is stay by itself, when it is due.
func (m *member) remain(ctx context.Context) error {
	if time.Now().UnixMilli() < m.touch.Load() {
		return nil
	}
	return m.g.s.db.do(ctx, "", write(m.stay))
}

// deadline is the end of a lease that begins now, rounded up to milliseconds.
func (m *member) deadline(now time.Time) int64 { return deadlineMS(now, m.g.opts.Lease) }

func deadlineMS(now time.Time, d time.Duration) int64 {
	return now.Add(d).Add(time.Millisecond - 1).UnixMilli() // one sum could overflow
}

// Claim gives the member up to n events at once and holds them for the group's Lease. No
// event is an empty result and no error; it takes no write lock then, but to stay a member. It may return fewer
// than there are. An event whose payload does not decode into E is dead, see [Group.Dead].
//
// [ErrMemberTaken]: the member was silent for too long, and another took its name.
// [ErrNotFound]: the group was deleted.
func (m *Member[E]) Claim(ctx context.Context, n int) ([]*Delivery[E], error) {
	out, err := m.claim(ctx, n)
	return out, fail("claim from group", m.m.g.name, err)
}

func (m *Member[E]) claim(ctx context.Context, n int) ([]*Delivery[E], error) {
	if n <= 0 {
		return nil, fmt.Errorf("%w: claim of %d events", ErrInvalid, n)
	}
	for {
		if ready, err := m.m.ready(ctx); err != nil || !ready {
			return nil, errors.Join(err, m.m.remain(ctx))
		}
		rows, err := m.m.claim(ctx, n)
		if err != nil {
			return nil, err
		}
		if out := m.decodeAll(ctx, rows); len(out) > 0 {
			return out, nil
		}
	}
}

func (m *member) usable(ctx context.Context) error {
	if ctx.Err() != nil {
		return ended(ctx)
	}
	return errors.Join(m.g.usable(), inTx(ctx, m.g.s.db, ""))
}

// ready reads whether a claim would do something, and otherwise has the hub look again
// when it will.
func (m *member) ready(ctx context.Context) (bool, error) {
	db := m.g.s.db
	if err := m.usable(ctx); err != nil {
		return false, err
	}
	ready, nextMS, err := store.Groups{}.Ready(context.WithoutCancel(ctx), db.own, m.id, time.Now().UnixMilli())
	if err == nil && !ready && nextMS != 0 {
		db.hub.watcher.WakeAt(time.UnixMilli(nextMS))
	}
	return ready, db.because(err)
}

// claim may return nothing where there is something further on.
func (m *member) claim(ctx context.Context, n int) (rows []store.Delivery, err error) {
	err = m.g.s.db.do(ctx, "", write(func(ctx context.Context, q store.Querier, now time.Time) error {
		rows, err = store.Groups{}.Claim(ctx, q, store.GroupClaim{
			Member: m.who, N: n, MaxAttempts: int64(m.g.opts.MaxAttempts), ExpiresMS: m.deadline(now),
		}, now.UnixMilli())
		if err != nil {
			return err
		}
		return m.stay(ctx, q, now)
	}))
	return rows, err
}

// decodeAll makes deliveries of rows, and dead events of those that do not decode.
func (m *Member[E]) decodeAll(ctx context.Context, rows []store.Delivery) (out []*Delivery[E]) {
	for _, row := range rows {
		d, err := newDelivery[E](m.m, row)
		if err == nil {
			out = append(out, d)
			continue
		}
		if err := d.bury(ctx, err); err != nil && !errors.Is(err, ErrClaimLost) {
			// Its lease will run out, and it be tried again; the others must not wait for that.
			m.m.g.s.db.opts.Logger.Warn("honker: an undecodable event could not be given up", "group", m.m.g.name, "error", err)
		}
	}
	return out
}

// Leave ends the membership. What the member holds goes to the others, as if it had not
// been given out; its settles are [ErrClaimLost].
func (m *Member[E]) Leave(ctx context.Context) error {
	db := m.m.g.s.db
	err := db.do(ctx, "", write(func(ctx context.Context, q store.Querier, now time.Time) error {
		return store.Groups{}.Leave(ctx, q, m.m.who, now.UnixMilli())
	}))
	if err == nil {
		m.m.touch.Store(0) // a later claim has to ask for the name again
		db.hub.hint(groupReturn, groupKey(m.m.id))
	}
	return fail("leave group", m.m.g.name, err)
}

// All yields events one by one: settle each in the body, within the group's Lease, of
// which up to a tenth of a second may be gone, and no more than an eighth. It waits for events without polling until ctx ends. The error, also of the end of ctx, is
// yielded once and is the last. Breaking off is safe.
//
// It claims ahead what a body that is quick will take in some milliseconds; what it has
// claimed and not yielded goes back to the group, unspent.
func (m *Member[E]) All(ctx context.Context) iter.Seq2[*Delivery[E], error] {
	return func(yield func(*Delivery[E], error) bool) {
		a := &ahead[E]{m: m, size: 1}
		defer a.giveBack()
		for {
			d, err := a.next(ctx)
			if err != nil {
				err = fail("claim from group", m.m.g.name, err)
			}
			if !yield(d, err) || err != nil {
				return
			}
		}
	}
}

// ahead is what All has claimed and not yielded.
type ahead[E any] struct {
	m     *Member[E]
	held  []*Delivery[E]
	size  int // of the next claim
	taken time.Time
}

const (
	mostAhead = 64
	quickBody = 10 * time.Millisecond // for all of a claim
	slowBody  = 100 * time.Millisecond
)

// stale is how much of its lease an event may have lost when it is yielded.
func (a *ahead[E]) stale() time.Duration { return min(slowBody, a.m.m.g.opts.Lease/8) }

func (a *ahead[E]) next(ctx context.Context) (*Delivery[E], error) {
	if err := a.m.m.usable(ctx); err != nil {
		return nil, err
	}
	if len(a.held) > 0 && time.Since(a.taken) > a.stale() {
		a.giveBack()
	}
	for len(a.held) == 0 {
		if err := a.fill(ctx); err != nil {
			return nil, err
		}
	}
	d := a.held[0]
	a.held = a.held[1:]
	return d, nil
}

// fill claims, or waits until that may find something.
func (a *ahead[E]) fill(ctx context.Context) (err error) {
	switch took := time.Since(a.taken); {
	case took < min(quickBody, a.m.m.g.opts.Lease/8):
		a.size = min(2*a.size, mostAhead)
	case took > slowBody:
		a.size = 1
	}
	a.held, err = a.m.claim(ctx, a.size)
	a.taken = time.Now()
	if err != nil || len(a.held) > 0 {
		return err
	}
	return a.m.m.await(ctx)
}

// await returns when a claim may find something. The member stays one meanwhile.
func (m *member) await(ctx context.Context) error {
	s := m.g.s.db.hub.subscribe(m.topics...)
	defer s.leave()
	for {
		// After subscribing: a commit between is not missed.
		if ready, err := m.ready(ctx); err != nil || ready {
			return err
		}
		if err := s.waitFor(ctx, m.g.opts.Lease/3); err != nil {
			return err
		}
		if err := m.remain(ctx); err != nil {
			return err
		}
	}
}

// giveBack returns what nobody has seen. What fails to return will, by its lease.
func (a *ahead[E]) giveBack() {
	if len(a.held) == 0 {
		return
	}
	m, token := a.m.m, a.held[0].Token
	offsets := make([]int64, len(a.held))
	for i, d := range a.held {
		offsets[i] = d.Offset
	}
	a.held = nil
	err := m.g.s.db.do(context.Background(), "", write(func(ctx context.Context, q store.Querier, now time.Time) error {
		return store.Groups{}.Release(ctx, q, m.id, token, offsets, now.UnixMilli())
	}))
	if err == nil {
		m.g.s.db.hub.hint(groupReturn, groupKey(m.id))
	}
}
