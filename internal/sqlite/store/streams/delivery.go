package streams

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"time"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/rows"
)

// claimScan is the maximum number of rows of a sparse selection that a single claim reads. It is limited because the
// claim holds the write lock.
const claimScan = 2000

// Claim leases up to c.N events to a member. New events come first, followed by returned events, most recently
// returned first. This order keeps an event that repeatedly fails from holding up the others. Claim may return no
// events even if there are new ones further on. In that case it moves the group's cursor and sets More. It returns
// ErrStuck if the group is ready but nothing could be changed.
//
// Claim first settles lapsed leases. Dead lists the events that it dead-lettered.
func (gs Groups) Claim(ctx context.Context, q row.Querier, c row.GroupClaim, now time.Time) (claimed row.GroupClaimed, err error) {
	g, err := groupByID(ctx, q, c.Member.Group)
	if err != nil {
		return row.GroupClaimed{}, err
	}
	g.Epoch++
	dead, done, err := returnLapsed(ctx, q, g, c.MaxAttempts, now.UnixMilli())
	if err != nil {
		return row.GroupClaimed{}, err
	}
	events, cursor, more, err := fresh(ctx, q, g, c.N)
	if err != nil {
		return row.GroupClaimed{}, err
	}
	out, err := hold(ctx, q, g, c, events)
	if err != nil {
		return row.GroupClaimed{}, err
	}
	if len(out) < c.N && !more {
		var gone int
		if out, gone, more, err = holdAgain(ctx, q, g, c, out, now.UnixMilli()); err != nil {
			return row.GroupClaimed{}, err
		}
		done += gone
	}
	moved, err := rows.Affected(ctx, q, sqlMoveGroup, g.ID, cursor, g.Epoch)
	switch {
	case err != nil:
		return row.GroupClaimed{}, err
	case moved == 0:
		return row.GroupClaimed{}, row.ErrStuck
	case len(out)+done > 0 || cursor > g.Cursor:
		return row.GroupClaimed{Events: out, Dead: dead, More: more || len(out) == c.N}, nil
	}
	if state, err := gs.Ready(ctx, q, g.ID, now); err != nil || !state.Ready {
		return row.GroupClaimed{}, err
	}
	return row.GroupClaimed{}, row.ErrStuck
}

const sqlMoveGroup = `UPDATE _honkerx_groups SET cursor = ?2, turn = ?3 WHERE id = ?1`

// Events whose leases have lapsed are returned or dead-lettered. State 0 is leased, 1 returned, 2 dead. In these
// states, deadline_ms is the time at which the lease ends, at which the event can be claimed again, and at which it
// died, respectively.
const sqlReturnLapsed = `UPDATE _honkerx_group_claims
SET state = iif(?4 > 0 AND attempts >= ?4, 2, 1), token = ?2, deadline_ms = ?3,
  last_error = iif(?4 > 0 AND attempts >= ?4, '` + row.ReasonExhausted + `', last_error)
WHERE group_id = ?1 AND offset IN (SELECT offset FROM _honkerx_group_claims
  WHERE group_id = ?1 AND state = 0 AND deadline_ms < ?3 LIMIT ?5 + 0)
RETURNING offset, attempts, state = 2`

// returnLapsed returns or dead-letters up to rows.OverdueLimit events whose leases have lapsed. The next claim
// continues with the rest. settled counts both kinds.
func returnLapsed(ctx context.Context, q row.Querier, g row.Group, maxAttempts int, nowMS int64) (dead []row.GroupDeath, settled int, err error) {
	err = rows.Each(ctx, q, sqlReturnLapsed, func(r *sql.Rows) error {
		var d row.GroupDeath
		var died bool
		err := r.Scan((*rows.Number)(&d.Offset), (*rows.Number)(&d.Attempts), &died)
		if died {
			dead = append(dead, d)
		}
		settled++
		return err
	}, g.ID, g.Epoch, nowMS, maxAttempts, rows.OverdueLimit)
	return dead, settled, err
}

// fresh reads events that no member has received yet, and returns them and the group's new cursor. more reports
// whether there may be others further on.
func fresh(ctx context.Context, q row.Querier, g row.Group, n int) (events []row.Event, cursor int64, more bool, err error) {
	s, cursor := g.Selection(), g.Cursor
	if !s.Sparse() {
		events, more, err = readEvents(ctx, q, s, cursor, row.Unbounded, n, nil)
		if len(events) > 0 {
			cursor = events[len(events)-1].Offset
		}
		return events, cursor, more, err
	}
	return freshSparse(ctx, q, s, cursor, n)
}

// freshSparse is fresh for a selection with a filter or a pattern. It first reads a few rows, because the next
// rows usually match, and then up to claimScan rows.
func freshSparse(ctx context.Context, q row.Querier, s row.Selection, cursor int64, n int) (events []row.Event, _ int64, more bool, err error) {
	for scan, seen := min(claimScan, 4*int64(n)+16), int64(0); seen < claimScan; scan = claimScan {
		through, beyond, err := horizon(ctx, q, s, cursor, scan)
		if err != nil {
			return nil, 0, false, err
		}
		var full bool
		events, full, err = readEvents(ctx, q, s, cursor, through, n-len(events), events)
		if err != nil {
			return nil, 0, false, err
		}
		if full { // unread rows may follow the last event
			return events, events[len(events)-1].Offset, true, nil
		}
		if !beyond {
			return events, through, false, nil
		}
		cursor, seen = through, seen+scan
	}
	return events, cursor, true, nil
}

// OR REPLACE is needed because another program may have stored a claim above the cursor. This library never does.
const sqlHold = `INSERT OR REPLACE INTO _honkerx_group_claims (group_id, offset, state, holder, token, deadline_ms, attempts)
SELECT ?1, value, 0, ?3, ?4, ?5, 1 FROM json_each(?2)`

// hold leases new events to the member.
func hold(ctx context.Context, q row.Querier, g row.Group, c row.GroupClaim, events []row.Event) ([]row.Delivery, error) {
	if len(events) == 0 {
		return nil, nil
	}
	out := make([]row.Delivery, len(events))
	for i, e := range events {
		out[i] = row.Delivery{Event: e, Token: g.Epoch, Attempts: 1}
	}
	held, err := rows.Affected(ctx, q, sqlHold, g.ID, offsets(out), c.Member.Instance, g.Epoch, rows.MilliUp(c.Expires))
	if err == nil && held < len(out) {
		return nil, row.ErrNotInserted
	}
	return out, err
}

func offsets(ds []row.Delivery) string {
	ids := make([]int64, len(ds))
	for i, d := range ds {
		ids[i] = d.Offset
	}
	return rows.IDList(ids)
}

const sqlReturned = `SELECT iif(typeof(c.offset) = 'integer', c.offset, NULL), s.topic, ifnull(s.key, ''), ifnull(s.payload, ''), s.created_at, c.attempts + 1
FROM _honkerx_group_claims AS c INDEXED BY _honkerx_group_claims_back LEFT JOIN _honker_stream AS s ON s.offset = c.offset
WHERE c.group_id = ?1 AND c.state = 1 AND c.deadline_ms <= ?2
ORDER BY c.token DESC, c.offset DESC LIMIT ?3 + 0`

// These statements use the primary key.
const (
	sqlHoldAgain = `UPDATE _honkerx_group_claims
SET state = 0, holder = ?3, token = ?4, deadline_ms = ?5, attempts = attempts + 1
WHERE group_id = ?1 AND offset IN (SELECT value FROM json_each(?2))`

	sqlDropGone = `DELETE FROM _honkerx_group_claims WHERE group_id = ?1 AND offset IN (SELECT value FROM json_each(?2))`
)

// sqlDropOdd uses the primary key, by group. An offset that is not an integer is read as 0, which is never a
// valid offset, so its claim counts as a claim on a deleted event. This library never stores such offsets.
const sqlDropOdd = `DELETE FROM _honkerx_group_claims WHERE group_id = ?1 AND typeof(offset) <> 'integer'`

// dropGone deletes the claims on deleted events and returns how many it deleted.
func dropGone(ctx context.Context, q row.Querier, group int64, gone []row.Delivery) (int, error) {
	if len(gone) == 0 {
		return 0, nil
	}
	dropped, err := rows.Affected(ctx, q, sqlDropGone, group, offsets(gone))
	if err != nil || !slices.ContainsFunc(gone, func(d row.Delivery) bool { return d.Offset == 0 }) {
		return dropped, err
	}
	odd, err := rows.Affected(ctx, q, sqlDropOdd, group)
	return dropped + odd, err
}

// holdAgain leases returned events to the member and appends them to out. It deletes claims on events that were
// deleted from the stream, and returns how many. more reports whether there may be other returned events.
func holdAgain(ctx context.Context, q row.Querier, g row.Group, c row.GroupClaim, out []row.Delivery, nowMS int64) (_ []row.Delivery, dropped int, more bool, err error) {
	n := c.N - len(out)
	back, gone, full, err := returned(ctx, q, g, n, nowMS)
	if err != nil {
		return nil, 0, false, err
	}
	more = full || len(back)+len(gone) == n
	dropped, err = dropGone(ctx, q, g.ID, gone)
	if err != nil || len(back) == 0 {
		return out, dropped, more, err
	}
	held, err := rows.Affected(ctx, q, sqlHoldAgain, g.ID, offsets(back), c.Member.Instance, g.Epoch, rows.MilliUp(c.Expires))
	if err == nil && held < len(back) {
		return nil, 0, false, row.ErrStuck
	}
	return append(out, back...), dropped, more, err
}

// returned reads returned events that can be claimed again. It returns claims on deleted events separately, in gone.
// Like all reads of events it is limited to rows.PageBytes; full means that it reached that limit.
func returned(ctx context.Context, q row.Querier, g row.Group, n int, nowMS int64) (back, gone []row.Delivery, full bool, err error) {
	size := 0
	err = rows.Each(ctx, q, sqlReturned, func(r *sql.Rows) error {
		d := row.Delivery{Token: g.Epoch}
		var topic sql.NullString
		if err := r.Scan((*rows.Number)(&d.Offset), &topic, &d.Key, &d.Payload, (*rows.Second)(&d.CreatedAt), (*rows.Number)(&d.Attempts)); err != nil {
			return err
		}
		if d.Topic = topic.String; topic.Valid {
			back = append(back, d)
		} else {
			gone = append(gone, d)
		}
		if size += len(d.Payload); size >= rows.PageBytes {
			return rows.ErrPageFull
		}
		return nil
	}, g.ID, nowMS, n)
	if errors.Is(err, rows.ErrPageFull) {
		return back, gone, true, nil
	}
	return back, gone, false, err
}

// A lease is valid while the row has its epoch and the deadline has not passed.
const whereHolding = ` WHERE group_id = ?1 AND offset = ?2 AND token = ?3 AND state = 0 AND deadline_ms >= ?4`

// sqlAckDelivery uses the primary key.
const sqlAckDelivery = `DELETE FROM _honkerx_group_claims` + whereHolding

// sqlAckDeliveries uses the primary key. The sum keeps it from the index of deadlines, which would walk all leased events.
const sqlAckDeliveries = `DELETE FROM _honkerx_group_claims
WHERE group_id = ?1 AND offset IN (SELECT value FROM json_each(?2)) AND token = ?3 AND state + 0 = 0 AND deadline_ms >= ?4`

// Ack ends the leases on handled events and returns how many were valid. It makes a statement for each run of events that
// were claimed together.
func (Groups) Ack(ctx context.Context, q row.Querier, held []row.Holding, now time.Time) (n int, err error) {
	for len(held) > 0 {
		first, run := held[0], []int64(nil)
		for len(run) < len(held) && held[len(run)].Token == first.Token {
			run = append(run, held[len(run)].Offset)
		}
		ended, err := rows.Affected(ctx, q, sqlAckDeliveries, first.Group, rows.IDList(run), first.Token, now.UnixMilli())
		if err != nil {
			return n, err
		}
		n, held = n+ended, held[len(run):]
	}
	return n, nil
}

// sqlNack uses the primary key.
const sqlNack = `UPDATE _honkerx_group_claims
SET state = iif(?7 > 0 AND attempts >= ?7, 2, 1), token = ?5,
  deadline_ms = iif(?7 > 0 AND attempts >= ?7, ?4, ?6), last_error = nullif(?8, '')` + whereHolding + ` RETURNING state = 2`

// Settle ends an event's lease. If the event was handled, the group is done with it, which takes a single statement.
// Otherwise the event is returned to the group or dead-lettered.
func (Groups) Settle(ctx context.Context, q row.Querier, s row.GroupSettlement, now time.Time) (row.GroupSettled, error) {
	if !s.Back {
		n, err := rows.Affected(ctx, q, sqlAckDelivery, s.Group, s.Offset, s.Token, now.UnixMilli())
		return row.GroupSettled{Held: n > 0}, err
	}
	epoch, err := nextEpoch(ctx, q, s.Group)
	if err != nil {
		return row.GroupSettled{}, err
	}
	var out row.GroupSettled
	args := []any{s.Group, s.Offset, s.Token, now.UnixMilli(), epoch, rows.MilliUp(s.Ready), s.MaxAttempts, s.Cause}
	out.Held, err = rows.One(ctx, q, sqlNack, args, &out.Died)
	return out, err
}

// These statements use the primary key.
const (
	sqlRelease = `UPDATE _honkerx_group_claims SET state = 1, token = ?4, deadline_ms = ?5, attempts = attempts - 1
WHERE group_id = ?1 AND offset IN (SELECT value FROM json_each(?2)) AND token = ?3 AND state = 0`

	sqlExtendDelivery = `UPDATE _honkerx_group_claims SET deadline_ms = ?5` + whereHolding
)

// Release returns claimed events that no handler has seen, without counting the attempt. It ignores the deadline:
// while a row has this token, no other member can hold it, even if the lease has lapsed.
func (Groups) Release(ctx context.Context, q row.Querier, group, token int64, events []int64, now time.Time) error {
	epoch, err := nextEpoch(ctx, q, group)
	if err != nil {
		return err
	}
	_, err = q.ExecContext(ctx, sqlRelease, group, rows.IDList(events), token, epoch, now.UnixMilli())
	return err
}

// Extend sets the time at which a lease ends to expires. It returns false if the lease is no longer valid.
func (Groups) Extend(ctx context.Context, q row.Querier, h row.Holding, expires, now time.Time) (bool, error) {
	n, err := rows.Affected(ctx, q, sqlExtendDelivery, h.Group, h.Offset, h.Token, now.UnixMilli(), rows.MilliUp(expires))
	return n > 0, err
}

const sqlDeadDeliveries = `SELECT c.offset, s.topic, ifnull(s.key, ''), s.payload, s.created_at, c.attempts, coalesce(c.last_error, ''), c.deadline_ms
FROM _honkerx_group_claims AS c INDEXED BY _honkerx_group_claims_dead CROSS JOIN _honker_stream AS s ON s.offset = c.offset
WHERE c.group_id = ?1 AND c.state = 2 AND c.offset > ?2 ORDER BY c.offset LIMIT ?3 + 0`

// Dead returns up to limit dead events with offsets above after, in order. It stops early at rows.PageBytes.
func (Groups) Dead(ctx context.Context, q row.Querier, group, after int64, limit int) ([]row.DeadDelivery, error) {
	var out []row.DeadDelivery
	size := 0
	err := rows.Each(ctx, q, sqlDeadDeliveries, func(r *sql.Rows) error {
		var d row.DeadDelivery
		err := r.Scan(&d.Offset, &d.Topic, &d.Key, &d.Payload, (*rows.Second)(&d.CreatedAt), (*rows.Number)(&d.Attempts), &d.LastError, (*rows.Milli)(&d.DiedAt))
		if err != nil {
			return err
		}
		out = append(out, d)
		if size += len(d.Payload) + len(d.LastError); size >= rows.PageBytes {
			return rows.ErrPageFull
		}
		return nil
	}, group, after, limit)
	if errors.Is(err, rows.ErrPageFull) {
		err = nil
	}
	return out, err
}

// These statements use the primary key.
const (
	sqlRevive = `UPDATE _honkerx_group_claims SET state = 1, token = ?3, deadline_ms = ?4, attempts = 0
WHERE group_id = ?1 AND offset = ?2 AND state = 2`

	sqlDropDead = `DELETE FROM _honkerx_group_claims WHERE group_id = ?1 AND offset = ?2 AND state = 2`
)

// Revive makes a dead event claimable again and resets its attempts. It returns false if there is no such dead
// event.
func (Groups) Revive(ctx context.Context, q row.Querier, group, offset int64, now time.Time) (bool, error) {
	epoch, err := nextEpoch(ctx, q, group)
	if err != nil {
		return false, err
	}
	n, err := rows.Affected(ctx, q, sqlRevive, group, offset, epoch, now.UnixMilli())
	return n > 0, err
}

// Discard deletes a dead event from the group. It returns false if there is no such dead event.
func (Groups) Discard(ctx context.Context, q row.Querier, group, offset int64) (bool, error) {
	n, err := rows.Affected(ctx, q, sqlDropDead, group, offset)
	return n > 0, err
}
