package honker

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/wake"
	"github.com/honker-go/honker/internal/worker"
)

// Member claims events from a group. It is safe for concurrent use.
//
// A member remains in the group while it claims or ranges over All. A member that does neither for a Lease
// leaves the group, and its name becomes free. Its next claim rejoins the group unless another member has taken
// the name.
type Member[E any] struct{ *member }

// member is the untyped part of a Member.
type member struct {
	db       *DB
	group    *group
	id       int64 // ID of the group; a group recreated under the same name has a different ID
	identity row.Member
	renewAt  atomic.Int64 // time of the next heartbeat in Unix milliseconds
	keys     []wake.Key   // changes that may make an event claimable
}

// Join adds a member with the given name to the group, creating the group if it does not exist. The name must be
// unique in the group. A member whose process was killed keeps its name for a Lease, so a fixed name, such as a host
// name, delays a quick restart. If another member has the name, Join returns [ErrMemberTaken]. The error text
// contains that member's process, as host, pid and a random part, and the time at which its hold on the name expires.
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
	var start row.Start // set for a new group
	err := g.db.engine.Write(ctx, "", engine.OpFunc(func(ctx context.Context, q engine.Querier, now time.Time) (err error) {
		start, err = m.enter(ctx, q, now)
		return err
	}))
	if err != nil {
		return nil, err
	}
	g.s.logIfGone("group", g.name, start)
	m.keys = []wake.Key{{Kind: wake.TopicEvent, Name: g.s.name, Filter: g.filter}, {Kind: wake.GroupReturn, Name: groupKey(m.id)}}
	return m, nil
}

// groupKey returns the wake key under which members wait for events returned to the group.
func groupKey(id int64) string { return strconv.FormatInt(id, 10) }

// enter adds m to its group, creating the group if necessary. It returns the start of a new group.
func (m *member) enter(ctx context.Context, q engine.Querier, now time.Time) (row.Start, error) {
	g := m.group
	joined, err := m.db.engine.Stores.Groups.Join(ctx, q, row.GroupJoin{
		Topic: g.s.name, Name: g.name, Filter: g.filter, From: g.opts.From.position(),
		Member: m.identity, Expires: m.deadline(now),
	}, now)
	if err != nil {
		return row.Start{}, err
	}
	m.id, m.identity.Group = joined.Group, joined.Group
	return joined.Start, m.renewed(joined.Membership, now)
}

// heartbeat extends the membership, and the hold on the name, by another Lease. It does nothing until a third of
// the Lease has passed.
func (m *member) heartbeat(ctx context.Context, q engine.Querier, now time.Time) error {
	if now.UnixMilli() < m.renewAt.Load() {
		return nil
	}
	s, err := m.db.engine.Stores.Groups.Renew(ctx, q, m.identity, m.deadline(now), now)
	if err != nil {
		return err
	}
	return m.renewed(s, now)
}

// renewed sets the time of the next heartbeat. If the name is taken, it returns ErrMemberTaken with the other
// member's process and the time at which its hold on the name expires.
func (m *member) renewed(s row.Membership, now time.Time) error {
	switch {
	case s.Kept:
		m.renewAt.Store(now.Add(m.group.opts.Lease / 3).UnixMilli())
		return nil
	case s.Holder == "":
		return ErrMemberTaken
	}
	return fmt.Errorf("%w by %q until %s", ErrMemberTaken, s.Holder, s.Expires.UTC().Format(time.RFC3339))
}

// renew runs a heartbeat in a new transaction. It does not begin a transaction if no heartbeat is due.
func (m *member) renew(ctx context.Context) error {
	if m.db.engine.Now().UnixMilli() < m.renewAt.Load() {
		return nil
	}
	return m.db.engine.Write(ctx, "", engine.OpFunc(m.heartbeat))
}

// deadline returns the end of a lease that starts now.
func (m *member) deadline(now time.Time) time.Time { return now.Add(m.group.opts.Lease) }

// Claim leases up to n events to the member for the group's Lease. It does not wait for events: if there are
// none, it returns an empty slice and no error. Claim takes the write lock only if there are events or if the
// membership must be renewed, and then waits for the writer until ctx ends or BusyTimeout has passed. It may
// return fewer events than are available: at most 1,000 events and about 1 MiB of payloads. An event whose
// payload does not decode into E is dead-lettered; see [Group.Dead].
//
// Claim returns [ErrMemberTaken] if another member took the name after this member missed its renewals,
// [ErrNotFound] if the group was deleted, and [ErrInvalid] if n is not positive.
func (m *Member[E]) Claim(ctx context.Context, n int) ([]*Delivery[E], error) {
	for {
		claimed, _, err := m.claim(ctx, n, false)
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

// decoded is a claimed event, or an event that was dead-lettered because it did not decode.
type decoded[E any] struct {
	delivery *Delivery[E]
	err      error // decoding error
}

// claim implements Claim. ready means that the caller has just seen that there are events. more reports whether there may
// be further events.
func (m *Member[E]) claim(ctx context.Context, n int, ready bool) (out []decoded[E], more bool, err error) {
	if n <= 0 {
		return nil, false, fmt.Errorf("%w: the number of events must be positive, got %d", ErrInvalid, n)
	}
	for {
		if !ready {
			ready, err = m.ready(ctx)
		}
		if err != nil {
			return nil, false, err
		}
		if !ready {
			return nil, false, m.renew(ctx)
		}
		step := &groupStep{member: m.member, n: n}
		if err := step.write(ctx); err != nil {
			return nil, false, err
		}
		if claimed := step.claimed; len(claimed.Events) > 0 {
			return m.decodeAll(ctx, claimed.Events), claimed.More, nil
		}
		ready = step.claimed.More
	}
}

// ready reports whether a claim would have any effect. If not, it schedules a wakeup for the time at which a claim
// would.
func (m *member) ready(ctx context.Context) (bool, error) {
	if m.group.err != nil {
		return false, m.group.err
	}
	if err := m.db.engine.UsableToWrite(ctx, ""); err != nil {
		return false, err
	}
	var s row.GroupState
	err := m.db.engine.Read(ctx, func(ctx context.Context, q engine.Querier) (err error) {
		s, err = m.db.engine.Stores.Groups.Ready(ctx, q, m.id, m.db.engine.Now())
		return err
	})
	if err == nil && !s.Ready {
		m.db.engine.Notifier.WakeAt(s.Next)
	}
	return s.Ready, err
}

// groupStep settles handled events and claims new ones for a member, in one transaction. A commit costs more than all of
// its statements together.
type groupStep struct {
	member   *member
	finished []*settleOp
	n        int                 // number of events to claim; 0: none
	pool     *worker.Reservation // has a slot for each event to claim; nil if no slots are needed

	exact    bool             // a lease was lost; find out which
	repeated bool             // an earlier commit of this step may have taken effect
	claimed  row.GroupClaimed // after write; it may be empty even if there are more events
}

// write commits the step. If a lease was lost, it runs the step a second time with exact set.
func (s *groupStep) write(ctx context.Context) error {
	e := s.member.db.engine
	err := e.Write(ctx, "", s)
	if errors.Is(err, row.ErrClaimsLost) {
		s.exact = true
		err = e.Write(ctx, "", s)
	}
	if err != nil {
		return err
	}
	for _, d := range s.claimed.Dead {
		s.member.group.reportDeath(d.Offset, int(d.Attempts), errExhausted)
	}
	return nil
}

// Single implements engine.Op.
func (s *groupStep) Single() bool { return false }

// Again implements engine.Fenced. Events that an earlier run has claimed stay claimed until their leases expire.
func (s *groupStep) Again() { s.repeated = true }

// Run implements engine.Op.
func (s *groupStep) Run(ctx context.Context, q engine.Querier, now time.Time) (err error) {
	if err := s.settle(ctx, q, now); err != nil || s.n == 0 {
		return err
	}
	m := s.member
	s.claimed, err = m.db.engine.Stores.Groups.Claim(ctx, q, row.GroupClaim{
		Member: m.identity, N: s.pool.Fill(min(s.n, row.ClaimRows)), MaxAttempts: m.group.opts.MaxAttempts, Expires: m.deadline(now),
	}, now)
	if err != nil {
		return err
	}
	return m.heartbeat(ctx, q, now)
}

// settle acks events together as long as no lease is lost, and settles the rest one after another.
func (s *groupStep) settle(ctx context.Context, q engine.Querier, now time.Time) error {
	var acks []row.Holding
	for _, op := range s.finished {
		if op.acks() && !s.exact {
			op.out.Held = true
			acks = append(acks, op.h.claim)
			continue
		}
		if err := op.Run(ctx, q, now); err != nil {
			return err
		}
	}
	if len(acks) == 0 {
		return nil
	}
	n, err := s.member.db.engine.Stores.Groups.Ack(ctx, q, acks, now)
	if err == nil && n < len(acks) {
		err = row.ErrClaimsLost
	}
	return err
}

// acks reports whether o acks an event that its handler has not settled in a transaction of its own.
func (o *settleOp) acks() bool { return !o.settle.Back && !o.h.settledTx.Load() }

// decodeAll converts rows to deliveries and dead-letters the events that do not decode.
func (m *Member[E]) decodeAll(ctx context.Context, rows []row.Delivery) []decoded[E] {
	out := make([]decoded[E], len(rows))
	for i, row := range rows {
		d, err := newDelivery[E](m.member, row)
		out[i] = decoded[E]{d, err}
		if err == nil {
			continue
		}
		if err := d.deadLetter(ctx, err); err != nil && !errors.Is(err, ErrClaimLost) {
			// The event is tried again once its lease has expired. The other events don't wait for it.
			m.db.opts.Logger.Warn("honker: an undecodable event could not be dead-lettered",
				"group", m.group.name, "event", row.Offset, "error", err)
		}
	}
	return out
}

// Leave ends the membership. Events held by the member return to the group without using up an attempt, and
// settling them returns [ErrClaimLost]. A later claim rejoins the group. Leave waits for the writer until ctx
// ends or BusyTimeout has passed.
func (m *Member[E]) Leave(ctx context.Context) error {
	return fail("leave group", m.group.name, m.leave(ctx))
}

func (m *member) leave(ctx context.Context) error {
	err := m.db.engine.Write(ctx, "", engine.OpFunc(func(ctx context.Context, q engine.Querier, now time.Time) error {
		return m.db.engine.Stores.Groups.Leave(ctx, q, m.identity, now)
	}))
	if err != nil {
		return err
	}
	m.renewAt.Store(0) // a later claim must acquire the name again
	m.db.engine.Notifier.Wake(wake.Group(groupKey(m.id)))
	return nil
}

// All returns an iterator over events of the group. The loop body must settle each event within the group's Lease.
// When an event is yielded, its lease may already be up to a tenth of a second old, but no older than an eighth of
// the Lease. The iterator waits for events without polling and ends silently when ctx ends. Breaking out of the loop
// is safe.
//
// All claims only as many events ahead as a fast loop body can handle in a few milliseconds. Events that were claimed
// but not yielded return to the group without using up an attempt.
//
// An event whose payload does not decode into E is dead-lettered and yielded with the error, and the loop
// continues. Any other error, such as [ErrClosed] or an error of [Member.Claim], is yielded without an
// event and ends the loop.
func (m *Member[E]) All(ctx context.Context) iter.Seq2[*Delivery[E], error] {
	return func(yield func(*Delivery[E], error) bool) {
		p := &prefetcher[E]{member: m}
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

// prefetcher claims several events at once and returns them individually.
type prefetcher[E any] struct {
	member *Member[E]
	last   int          // size of the last claim
	held   []decoded[E] // events claimed and not yet returned
	taken  time.Time    // time of the claim of held
	dry    bool         // the last claim left no events behind
}

const (
	mostAhead = 64
	quickPace = 10 * time.Millisecond // events of a claim that are all handled within this time were handled quickly
	slowPace  = 100 * time.Millisecond
)

// size returns the size of the next claim. It doubles while events are handled quickly and is a single event when they
// are not.
func (p *prefetcher[E]) size() int {
	switch pace := time.Since(p.taken); {
	case p.last == 0 || pace > slowPace:
		p.last = 1
	case pace < p.quick():
		p.last = min(2*p.last, mostAhead)
	}
	return p.last
}

// quick returns quickPace, or less if the Lease is short.
func (p *prefetcher[E]) quick() time.Duration { return min(quickPace, p.member.group.opts.Lease/8) }

// stale returns how old a lease may be when the handling of its event begins.
func (m *member) stale() time.Duration { return min(slowPace, m.group.opts.Lease/8) }

// next waits for the next event and returns it. An event that does not decode is returned with its error; any
// other error is returned without an event. next first gives back events that have been held for too long.
func (p *prefetcher[E]) next(ctx context.Context) (*Delivery[E], error) {
	if err := p.member.db.engine.Usable(ctx, ""); err != nil {
		return nil, err
	}
	if len(p.held) > 0 && time.Since(p.taken) > p.member.stale() {
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

// fill claims events, or waits until a claim may find some. It waits if the last claim left no events behind. Waiting
// begins by checking the file, so an idle member checks for events once per wakeup.
func (p *prefetcher[E]) fill(ctx context.Context) error {
	waited := p.dry
	if waited {
		if err := p.member.waitForEvents(ctx); err != nil {
			return err
		}
	}
	held, more, err := p.member.claim(ctx, p.size(), waited)
	p.held, p.taken, p.dry = held, time.Now(), !more
	return err
}

// waitForEvents blocks until a claim may find events, renewing the membership while it waits.
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

// third returns the interval at which leases and the membership are renewed. It leaves time for two more tries within
// a Lease.
func (m *member) third() time.Duration { return max(m.group.opts.Lease/3, time.Millisecond) }

// giveBack returns the held events to the group.
func (p *prefetcher[E]) giveBack() {
	var unhandled []row.Holding
	for _, h := range p.held {
		if h.err == nil { // otherwise the event is already dead
			unhandled = append(unhandled, h.delivery.claim)
		}
	}
	p.held = nil
	p.member.release(unhandled)
}

// release returns claimed events to the group without using up an attempt. If that fails, they return when their leases
// expire.
func (m *member) release(held []row.Holding) {
	if len(held) == 0 {
		return
	}
	offsets := make(map[int64][]int64) // by token
	for _, h := range held {
		offsets[h.Token] = append(offsets[h.Token], h.Offset)
	}
	err := m.db.engine.Write(context.Background(), "", engine.OpFunc(func(ctx context.Context, q engine.Querier, now time.Time) error {
		for _, token := range slices.Sorted(maps.Keys(offsets)) {
			if err := m.db.engine.Stores.Groups.Release(ctx, q, m.id, token, offsets[token], now); err != nil {
				return err
			}
		}
		return nil
	}))
	if err != nil {
		return
	}
	m.db.engine.Notifier.Wake(wake.Group(groupKey(m.id)))
}
