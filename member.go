package honker

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/store"
	"github.com/honker-go/honker/internal/wake"
	"github.com/honker-go/honker/internal/worker"
)

// Member takes events of a group. It is safe for concurrent use.
//
// A member stays while it claims or ranges over All. One that is silent for a Lease has
// left: its name is free, but its next claim brings it back if no other member took that.
type Member[E any] struct{ *member }

// member is a Member without its type.
type member struct {
	db       *DB
	group    *group
	id       int64 // of the group, which may be deleted and made again under the same name
	identity row.Member
	renewAt  atomic.Int64 // unix milliseconds: when the next heartbeat is due
	keys     []wake.Key   // what may give it an event
}

// Join makes the group if there is none, and member one of its members. Each needs a name
// of its own; one that was killed keeps its name for a Lease, so that a fixed one, such as
// the host's, makes a quick restart wait. [ErrMemberTaken]: another member has that name; the
// text says which process it is in, as host, pid and a random part, and until when.
// Join waits for the writer until ctx ends or BusyTimeout has passed.
func (g *Group[E]) Join(ctx context.Context, member string) (*Member[E], error) {
	m, err := g.join(ctx, member)
	if err != nil {
		return nil, fail("join group", g.name, err)
	}
	return &Member[E]{m}, nil
}

func (g *group) join(ctx context.Context, name string) (*member, error) {
	if err := errors.Join(g.err, engine.CheckName("member", name)); err != nil {
		return nil, err
	}
	m := &member{db: g.db, group: g, identity: row.Member{Name: name, Instance: newWorkerID()}}
	var cursor, gone int64 // of a group that is new
	err := g.db.engine.Write(ctx, "", engine.OpFunc(func(ctx context.Context, q engine.Querier, now time.Time) (err error) {
		cursor, gone, err = m.enter(ctx, q, now)
		return err
	}))
	if err != nil {
		return nil, err
	}
	g.s.logIfGone("group", g.name, cursor, gone)
	m.keys = []wake.Key{{Kind: wake.TopicEvent, Name: g.s.name, Filter: g.filter}, {Kind: wake.GroupReturn, Name: groupKey(m.id)}}
	return m, nil
}

// groupKey is the name under which members wait for events that come back.
func groupKey(id int64) string { return strconv.FormatInt(id, 10) }

// enter makes the group, unless there is one, and m a member. It returns where a new group begins, and up to
// where events are gone.
func (m *member) enter(ctx context.Context, q engine.Querier, now time.Time) (begin, gone int64, err error) {
	g := m.group
	row, err := m.db.groups.Get(ctx, q, g.s.name, g.name)
	begin = row.Cursor
	if errors.Is(err, ErrNotFound) {
		begin, gone, err = g.s.begin(ctx, q, g.opts.From)
	}
	if err != nil {
		return 0, 0, err
	}
	row, err = m.db.groups.Add(ctx, q, g.s.name, g.name, begin, g.filter, now.UnixMilli())
	if err != nil {
		return 0, 0, err
	}
	m.id, m.identity.Group = row.ID, row.ID
	if err := m.db.groups.DropSilent(ctx, q, m.id, now.UnixMilli()); err != nil {
		return 0, 0, err
	}
	return begin, gone, m.heartbeat(ctx, q, now)
}

// heartbeat keeps m a member, and its name, for another Lease. It does nothing until a
// third of one has passed.
func (m *member) heartbeat(ctx context.Context, q engine.Querier, now time.Time) error {
	if now.UnixMilli() < m.renewAt.Load() {
		return nil
	}
	kept, err := m.db.groups.TouchMember(ctx, q, m.identity, now.UnixMilli(), m.deadline(now))
	if err != nil {
		return err
	}
	if !kept {
		return m.taken(ctx, q)
	}
	m.renewAt.Store(now.Add(m.group.opts.Lease / 3).UnixMilli())
	return nil
}

// taken is ErrMemberTaken with the process that has the name, and until when it has it.
func (m *member) taken(ctx context.Context, q engine.Querier) error {
	instance, expires, found, err := m.db.groups.Holder(ctx, q, m.identity)
	if err != nil || !found {
		return errors.Join(ErrMemberTaken, err)
	}
	until := engine.InstantMS(expires).UTC().Format(time.RFC3339)
	return fmt.Errorf("%w by %q until %s", ErrMemberTaken, instance, until)
}

// renew is a heartbeat in a transaction of its own, without one when it is not due.
func (m *member) renew(ctx context.Context) error {
	if time.Now().UnixMilli() < m.renewAt.Load() {
		return nil
	}
	return m.db.engine.Write(ctx, "", engine.OpFunc(m.heartbeat))
}

// deadline is the end of a lease that begins now.
func (m *member) deadline(now time.Time) int64 { return engine.DeadlineMS(now, m.group.opts.Lease) }

// Claim gives the member up to n events at once and holds them for the group's Lease. It
// does not wait for events: none is an empty result and no error. It takes the write lock
// only when there are some, or to stay a member, and waits for it until ctx ends or
// BusyTimeout has passed. It may return fewer events than there are: at most 1,000, and about
// 1 MiB of payloads. An event with a payload that does not decode into E is dead-lettered, see
// [Group.Dead].
//
// [ErrMemberTaken]: the member was silent for too long, and another took its name.
// [ErrNotFound]: the group was deleted. An n that is not positive is [ErrInvalid].
func (m *Member[E]) Claim(ctx context.Context, n int) ([]*Delivery[E], error) {
	for {
		claimed, err := m.claim(ctx, n, nil)
		if err != nil || len(claimed) == 0 {
			return nil, fail("claim from group", m.group.name, err)
		}
		var out []*Delivery[E]
		for _, c := range claimed {
			if c.err == nil {
				out = append(out, c.delivery)
			}
		}
		if len(out) > 0 {
			return out, nil
		}
	}
}

// decoded is a claimed event, or one that was dead-lettered since it did not decode.
type decoded[E any] struct {
	delivery *Delivery[E]
	err      error // why it did not decode
}

// claim is Claim, of as many events as pool has slots for.
func (m *Member[E]) claim(ctx context.Context, n int, pool *worker.Reservation) ([]decoded[E], error) {
	if n <= 0 {
		return nil, fmt.Errorf("%w: claim of %d events", ErrInvalid, n)
	}
	for {
		ready, err := m.ready(ctx)
		if err != nil {
			return nil, err
		}
		if !ready {
			return nil, m.renew(ctx)
		}
		rows, err := m.claimRows(ctx, n, pool)
		if err != nil {
			return nil, err
		}
		if len(rows) > 0 {
			return m.decodeAll(ctx, rows), nil
		}
	}
}

// ready reads whether a claim would do something, and otherwise asks for a wake when it
// will.
func (m *member) ready(ctx context.Context) (ready bool, err error) {
	if m.group.err != nil {
		return false, m.group.err
	}
	if err := m.db.engine.UsableToWrite(ctx, ""); err != nil {
		return false, err
	}
	nextMS := int64(0)
	err = m.db.engine.Read(ctx, func(ctx context.Context, q engine.Querier) (err error) {
		ready, nextMS, err = m.db.groups.Ready(ctx, q, m.id, time.Now().UnixMilli())
		return err
	})
	if err == nil && !ready {
		m.db.engine.Notifier.WakeAt(engine.InstantMS(nextMS))
	}
	return ready, err
}

// claimRows may return nothing where there is something further on.
func (m *member) claimRows(ctx context.Context, n int, pool *worker.Reservation) (rows []row.Delivery, err error) {
	var dead []row.GroupDeath
	err = m.db.engine.Write(ctx, "", engine.OpFunc(func(ctx context.Context, q engine.Querier, now time.Time) error {
		rows, dead, err = m.db.groups.Claim(ctx, q, row.GroupClaim{
			Member: m.identity, N: pool.Fill(min(n, store.ClaimRows)), MaxAttempts: int64(m.group.opts.MaxAttempts), ExpiresMS: m.deadline(now),
		}, now.UnixMilli())
		if err != nil {
			return err
		}
		return m.heartbeat(ctx, q, now)
	}))
	if err != nil {
		return nil, err
	}
	for _, d := range dead {
		m.group.reportDeath(d.Offset, int(d.Attempts), errExhausted)
	}
	return rows, nil
}

// decodeAll makes deliveries of rows, and dead events of those that do not decode.
func (m *Member[E]) decodeAll(ctx context.Context, rows []row.Delivery) []decoded[E] {
	out := make([]decoded[E], len(rows))
	for i, row := range rows {
		d, err := newDelivery[E](m.member, row)
		out[i] = decoded[E]{d, err}
		if err == nil {
			continue
		}
		if err := d.deadLetter(ctx, err); err != nil && !errors.Is(err, ErrClaimLost) {
			// The others do not wait for it: it is tried again when its lease has run out.
			m.db.opts.Logger.Warn("honker: an undecodable event could not be dead-lettered",
				"group", m.group.name, "event", row.Offset, "error", err)
		}
	}
	return out
}

// Leave ends the membership. What the member holds goes to the others, without using up an
// attempt; its settles are [ErrClaimLost]. A later claim joins again. Leave waits for the
// writer until ctx ends or BusyTimeout has passed.
func (m *Member[E]) Leave(ctx context.Context) error {
	return fail("leave group", m.group.name, m.leave(ctx))
}

func (m *member) leave(ctx context.Context) error {
	err := m.db.engine.Write(ctx, "", engine.OpFunc(func(ctx context.Context, q engine.Querier, now time.Time) error {
		return m.db.groups.Leave(ctx, q, m.identity, now.UnixMilli())
	}))
	if err != nil {
		return err
	}
	m.renewAt.Store(0) // a later claim has to ask for the name again
	m.db.engine.Notifier.Wake(wake.Change{Kind: wake.GroupReturn, Name: groupKey(m.id)})
	return nil
}

// All yields events one by one: settle each in the body, within the group's Lease, of
// which up to a tenth of a second may be gone, and no more than an eighth. It waits for
// events without polling and ends silently when ctx ends. Breaking off is safe. An error,
// such as [ErrClosed], or one of [Member.Claim]'s, is yielded once and is the last.
//
// It claims ahead what a body that is quick will take in some milliseconds; what it has
// claimed and not yielded goes back to the group, unspent. An event with a payload that
// does not decode into E is dead-lettered, and yielded with the error; the loop goes on. Any
// other error comes without an event.
func (m *Member[E]) All(ctx context.Context) iter.Seq2[*Delivery[E], error] {
	return func(yield func(*Delivery[E], error) bool) {
		p := &prefetcher[E]{member: m}
		p.size = p.sizeByPace
		defer p.giveBack()
		for {
			d, err := p.next(ctx)
			if d == nil {
				if !engine.Ended(ctx) {
					yield(nil, fail("claim from group", m.group.name, err))
				}
				return
			}
			if !yield(d, err) {
				return
			}
		}
	}
}

// prefetcher claims several events at once and hands them out one by one.
type prefetcher[E any] struct {
	member *Member[E]
	size   func(pace time.Duration) int // of a claim, given how long the one before has lasted
	last   int                          // size of the last claim of sizeByPace
	held   []decoded[E]                 // claimed, and not handed out
	taken  time.Time                    // when held was claimed
	pool   *worker.Reservation          // has a slot for each of held; nil: none is needed
}

const (
	mostAhead = 64
	quickPace = 10 * time.Millisecond // for all of a claim
	slowPace  = 100 * time.Millisecond
)

// sizeByPace doubles the size while the events of a claim are handled quickly, and starts
// again with one when they are not.
func (p *prefetcher[E]) sizeByPace(pace time.Duration) int {
	switch {
	case p.last == 0 || pace > slowPace:
		p.last = 1
	case pace < p.quick():
		p.last = min(2*p.last, mostAhead)
	}
	return p.last
}

// quick is less than a Lease, however short that is.
func (p *prefetcher[E]) quick() time.Duration { return min(quickPace, p.member.group.opts.Lease/8) }

// stale is how much of its lease an event may have lost when it is handed out.
func (p *prefetcher[E]) stale() time.Duration { return min(slowPace, p.member.group.opts.Lease/8) }

// next returns the next event, and waits for it. One that did not decode comes with its error;
// any other error comes without an event. What has been held for too long by then goes back
// first.
func (p *prefetcher[E]) next(ctx context.Context) (*Delivery[E], error) {
	if err := p.member.db.engine.Usable(ctx, ""); err != nil {
		return nil, err
	}
	if len(p.held) > 0 && time.Since(p.taken) > p.stale() {
		p.giveBack()
	}
	for len(p.held) == 0 {
		if err := p.fill(ctx); err != nil {
			return nil, err
		}
	}
	next := p.held[0]
	p.held = p.held[1:]
	return next.delivery, next.err
}

// fill claims, or waits until that may find something.
func (p *prefetcher[E]) fill(ctx context.Context) error {
	if err := p.waitForSlot(ctx); err != nil {
		return err
	}
	held, err := p.member.claim(ctx, p.size(time.Since(p.taken)), p.pool)
	p.held, p.taken = held, time.Now()
	if err != nil || len(held) > 0 {
		return err
	}
	p.pool.Release()
	return p.member.waitForEvents(ctx)
}

// waitForSlot waits for one of those that are shared, with something to claim: an idle group
// reserves none.
func (p *prefetcher[E]) waitForSlot(ctx context.Context) error {
	if p.pool == nil {
		return nil
	}
	p.pool.Release() // what the last claim has not used
	if err := p.member.waitForEvents(ctx); err != nil {
		return err
	}
	return p.pool.Wait(ctx)
}

// waitForEvents returns when a claim may find something. The member stays one meanwhile.
func (m *member) waitForEvents(ctx context.Context) error {
	return m.db.engine.Notifier.Until(ctx, func() (time.Duration, error) {
		ready, err := m.ready(ctx)
		if err != nil || ready {
			return wake.Done, err
		}
		if err := m.renew(ctx); err != nil {
			return wake.Done, err
		}
		return m.third(), nil
	}, m.keys...)
}

// third is how often leases and the membership are renewed: two more tries fit into a Lease.
func (m *member) third() time.Duration { return max(m.group.opts.Lease/3, time.Millisecond) }

// giveBack returns what was not handed out, unspent. What fails to return will, by its
// lease.
func (p *prefetcher[E]) giveBack() {
	if len(p.held) == 0 {
		return
	}
	m, token := p.member, p.held[0].delivery.Token
	var offsets []int64
	for _, h := range p.held {
		if h.err == nil { // else it is dead
			offsets = append(offsets, h.delivery.Offset)
		}
	}
	p.held = nil
	p.pool.Release()
	err := m.db.engine.Write(context.Background(), "", engine.OpFunc(func(ctx context.Context, q engine.Querier, now time.Time) error {
		return m.db.groups.Release(ctx, q, m.id, token, offsets, now.UnixMilli())
	}))
	if err != nil {
		return
	}
	m.db.engine.Notifier.Wake(wake.Change{Kind: wake.GroupReturn, Name: groupKey(m.id)})
}
