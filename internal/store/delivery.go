package store

import (
	"context"
	"database/sql"
	"errors"
	"slices"

	"github.com/honker-go/honker/internal/row"
)

// claimScan bounds how many rows of a sparse selection one claim looks at, because it holds
// the write lock meanwhile.
const claimScan = 2000

// Claim gives up to N events to a member: fresh ones first, and once there are no more, the
// returned ones, the last returned first. So one event that fails again and again does not
// hold up the others. It may return none where there are fresh ones further on: then it has
// moved the group's cursor, and Ready is still true. It is ErrStuck where Ready is true and it
// can do nothing.
//
// dead are the events of lapsed leases that it has dead-lettered first.
func (gs Groups) Claim(ctx context.Context, q Querier, c row.GroupClaim, nowMS int64) (out []row.Delivery, dead []row.GroupDeath, err error) {
	g, err := groupByID(ctx, q, c.Member.Group)
	if err != nil {
		return nil, nil, err
	}
	g.Epoch++
	dead, done, err := returnLapsed(ctx, q, g, c.MaxAttempts, nowMS)
	if err != nil {
		return nil, nil, err
	}
	events, cursor, more, err := fresh(ctx, q, g, c.N)
	if err != nil {
		return nil, nil, err
	}
	if out, err = hold(ctx, q, g, c, events); err != nil {
		return nil, nil, err
	}
	if len(out) < c.N && !more {
		var gone int
		if out, gone, err = holdAgain(ctx, q, g, c, out, nowMS); err != nil {
			return nil, nil, err
		}
		done += gone
	}
	moved, err := affected(ctx, q, sqlMoveGroup, g.ID, cursor, g.Epoch)
	switch {
	case err != nil:
		return nil, nil, err
	case moved == 0:
		return nil, nil, ErrStuck
	case len(out)+done > 0 || cursor > g.Cursor:
		return out, dead, nil
	}
	if ready, _, err := gs.Ready(ctx, q, g.ID, nowMS); err != nil || !ready {
		return nil, nil, err
	}
	return nil, nil, ErrStuck
}

const sqlMoveGroup = `UPDATE _honkerx_groups SET cursor = ?2, turn = ?3 WHERE id = ?1`

// The events of lapsed leases are returned, or dead-lettered. State 0 is held, 1 returned, 2
// dead. deadline_ms is the end of the lease, the time from which an event can be claimed again,
// or when it was dead-lettered.
const sqlReturnLapsed = `UPDATE _honkerx_group_claims
SET state = iif(?4 > 0 AND attempts >= ?4, 2, 1), token = ?2, deadline_ms = ?3,
  last_error = iif(?4 > 0 AND attempts >= ?4, '` + ReasonExhausted + `', last_error)
WHERE group_id = ?1 AND offset IN (SELECT offset FROM _honkerx_group_claims
  WHERE group_id = ?1 AND state = 0 AND deadline_ms < ?3 LIMIT ?5 + 0)
RETURNING offset, attempts, state = 2`

// returnLapsed returns the events of lapsed leases, or dead-letters them, up to overdueLimit:
// the next claim goes on. It counts both.
func returnLapsed(ctx context.Context, q Querier, g row.Group, maxAttempts, nowMS int64) (dead []row.GroupDeath, settled int, err error) {
	err = each(ctx, q, sqlReturnLapsed, func(rows *sql.Rows) error {
		var d row.GroupDeath
		var died bool
		err := rows.Scan((*number)(&d.Offset), (*number)(&d.Attempts), &died)
		if died {
			dead = append(dead, d)
		}
		settled++
		return err
	}, g.ID, g.Epoch, nowMS, maxAttempts, overdueLimit)
	return dead, settled, err
}

// fresh reads events that were given to no member yet, and the group's cursor after them.
// more tells that there may be others further on.
func fresh(ctx context.Context, q Querier, g row.Group, n int) (events []row.Event, cursor int64, more bool, err error) {
	s, cursor := g.Selection(), g.Cursor
	if !s.Sparse() {
		events, more, err = Streams{}.Read(ctx, q, s, cursor, Unbounded, n, nil)
		if len(events) > 0 {
			cursor = events[len(events)-1].Offset
		}
		return events, cursor, more, err
	}
	return freshSparse(ctx, q, s, cursor, n)
}

// freshSparse is fresh for a selection with a filter or a pattern. It looks at few rows
// first, because mostly the next ones match, and at up to claimScan in a second step.
func freshSparse(ctx context.Context, q Querier, s row.Selection, cursor int64, n int) (events []row.Event, _ int64, more bool, err error) {
	for scan, seen := min(claimScan, 4*n+16), 0; seen < claimScan; scan = claimScan {
		through, beyond, err := Streams{}.Horizon(ctx, q, s, cursor, scan)
		if err != nil {
			return nil, 0, false, err
		}
		var full bool
		events, full, err = Streams{}.Read(ctx, q, s, cursor, through, n-len(events), events)
		if err != nil {
			return nil, 0, false, err
		}
		if full { // rows that were not read may follow the last event
			return events, events[len(events)-1].Offset, true, nil
		}
		if !beyond {
			return events, through, false, nil
		}
		cursor, seen = through, seen+scan
	}
	return events, cursor, true, nil
}

// OR REPLACE: an event above the cursor has no claim that this library made.
const sqlHold = `INSERT OR REPLACE INTO _honkerx_group_claims (group_id, offset, state, holder, token, deadline_ms, attempts)
SELECT ?1, value, 0, ?3, ?4, ?5, 1 FROM json_each(?2)`

// hold gives fresh events to the member.
func hold(ctx context.Context, q Querier, g row.Group, c row.GroupClaim, events []row.Event) ([]row.Delivery, error) {
	if len(events) == 0 {
		return nil, nil
	}
	out := make([]row.Delivery, len(events))
	for i, e := range events {
		out[i] = row.Delivery{Event: e, Token: g.Epoch, Attempts: 1}
	}
	held, err := affected(ctx, q, sqlHold, g.ID, offsets(out), c.Member.Instance, g.Epoch, c.ExpiresMS)
	if err == nil && held < len(out) {
		return nil, ErrNotInserted
	}
	return out, err
}

func offsets(ds []row.Delivery) string {
	ids := make([]int64, len(ds))
	for i, d := range ds {
		ids[i] = d.Offset
	}
	return idList(ids)
}

const sqlReturned = `SELECT iif(typeof(c.offset) = 'integer', c.offset, NULL), s.topic, ifnull(s.key, ''), s.payload, s.created_at, c.attempts + 1
FROM _honkerx_group_claims AS c INDEXED BY _honkerx_group_claims_back LEFT JOIN _honker_stream AS s ON s.offset = c.offset
WHERE c.group_id = ?1 AND c.state = 1 AND c.deadline_ms <= ?2
ORDER BY c.token DESC, c.offset DESC LIMIT ?3 + 0`

// By primary key.
const (
	sqlHoldAgain = `UPDATE _honkerx_group_claims
SET state = 0, holder = ?3, token = ?4, deadline_ms = ?5, attempts = attempts + 1
WHERE group_id = ?1 AND offset IN (SELECT value FROM json_each(?2))`

	sqlDropGone = `DELETE FROM _honkerx_group_claims WHERE group_id = ?1 AND offset IN (SELECT value FROM json_each(?2))`
)

// By the group. What is no integer is no offset, and is read as 0, which is none either: a claim
// on it is one on an event that is gone. This library makes none.
const sqlDropOdd = `DELETE FROM _honkerx_group_claims WHERE group_id = ?1 AND typeof(offset) <> 'integer'`

// dropGone drops claims on events that are gone, and counts them.
func dropGone(ctx context.Context, q Querier, group int64, gone []row.Delivery) (int, error) {
	if len(gone) == 0 {
		return 0, nil
	}
	dropped, err := affected(ctx, q, sqlDropGone, group, offsets(gone))
	if err != nil || !slices.ContainsFunc(gone, func(d row.Delivery) bool { return d.Offset == 0 }) {
		return dropped, err
	}
	odd, err := affected(ctx, q, sqlDropOdd, group)
	return dropped + odd, err
}

// holdAgain gives returned events to the member and appends them to out. The claims of
// events that were deleted from the stream meanwhile are dropped, and counted.
func holdAgain(ctx context.Context, q Querier, g row.Group, c row.GroupClaim, out []row.Delivery, nowMS int64) (_ []row.Delivery, dropped int, err error) {
	back, gone, err := returned(ctx, q, g, c.N-len(out), nowMS)
	if err != nil {
		return nil, 0, err
	}
	dropped, err = dropGone(ctx, q, g.ID, gone)
	if err != nil || len(back) == 0 {
		return out, dropped, err
	}
	held, err := affected(ctx, q, sqlHoldAgain, g.ID, offsets(back), c.Member.Instance, g.Epoch, c.ExpiresMS)
	if err == nil && held < len(back) {
		return nil, 0, ErrStuck
	}
	return append(out, back...), dropped, err
}

// returned reads returned events that can be claimed again, and separately the claims on
// events that are gone. Like any read of events it is bounded by pageBytes.
func returned(ctx context.Context, q Querier, g row.Group, n int, nowMS int64) (back, gone []row.Delivery, err error) {
	size := 0
	err = each(ctx, q, sqlReturned, func(rows *sql.Rows) error {
		d := row.Delivery{Token: g.Epoch}
		var topic sql.NullString
		if err := rows.Scan((*number)(&d.Offset), &topic, &d.Key, &d.Payload, (*number)(&d.CreatedAt), (*number)(&d.Attempts)); err != nil {
			return err
		}
		if d.Topic = topic.String; topic.Valid {
			back = append(back, d)
		} else {
			gone = append(gone, d)
		}
		if size += len(d.Payload); size >= pageBytes {
			return errPageFull
		}
		return nil
	}, g.ID, nowMS, n)
	if errors.Is(err, errPageFull) {
		err = nil
	}
	return back, gone, err
}

// A claim holds while its row is still of this epoch, and its lease has not run out.
const whereHolding = ` WHERE group_id = ?1 AND offset = ?2 AND token = ?3 AND state = 0 AND deadline_ms >= ?4`

// By primary key.
const sqlAckDelivery = `DELETE FROM _honkerx_group_claims` + whereHolding

// Ack ends a claim: the event is done. It is false when the claim no longer holds.
func (Groups) Ack(ctx context.Context, q Querier, h row.Holding, nowMS int64) (bool, error) {
	n, err := affected(ctx, q, sqlAckDelivery, h.Group, h.Offset, h.Token, nowMS)
	return n > 0, err
}

// By primary key.
const sqlNack = `UPDATE _honkerx_group_claims
SET state = iif(?7 > 0 AND attempts >= ?7, 2, 1), token = ?5,
  deadline_ms = iif(?7 > 0 AND attempts >= ?7, ?4, ?6), last_error = nullif(?8, '')` + whereHolding + ` RETURNING state = 2`

// Nack returns an event, to be claimed again from readyMS on, or dead-letters it when it has
// been given out maxAttempts times (0: no bound). held is false when the claim no longer
// holds; died tells which of the two it was.
func (Groups) Nack(ctx context.Context, q Querier, h row.Holding, readyMS, maxAttempts int64, cause string, nowMS int64) (held, died bool, err error) {
	epoch, err := nextEpoch(ctx, q, h.Group)
	if err != nil {
		return false, false, err
	}
	args := []any{h.Group, h.Offset, h.Token, nowMS, epoch, readyMS, maxAttempts, cause}
	held, err = one(ctx, q, sqlNack, args, &died)
	return held, died, err
}

// By primary key.
const (
	sqlRelease = `UPDATE _honkerx_group_claims SET state = 1, token = ?4, deadline_ms = ?5, attempts = attempts - 1
WHERE group_id = ?1 AND offset IN (SELECT value FROM json_each(?2)) AND token = ?3 AND state = 0`

	sqlExtendDelivery = `UPDATE _honkerx_group_claims SET deadline_ms = ?5` + whereHolding
)

// Release returns events of one claim that no handler has seen, as if they had not been
// given out. It does not ask for the deadline: a row that is still of this epoch is held by
// no other member, lapsed or not.
func (Groups) Release(ctx context.Context, q Querier, group, token int64, events []int64, nowMS int64) error {
	epoch, err := nextEpoch(ctx, q, group)
	if err != nil {
		return err
	}
	_, err = q.ExecContext(ctx, sqlRelease, group, idList(events), token, epoch, nowMS)
	return err
}

// Extend lets a claim hold until expiresMS; false when it no longer holds.
func (Groups) Extend(ctx context.Context, q Querier, h row.Holding, expiresMS, nowMS int64) (bool, error) {
	n, err := affected(ctx, q, sqlExtendDelivery, h.Group, h.Offset, h.Token, nowMS, expiresMS)
	return n > 0, err
}

const sqlDeadDeliveries = `SELECT c.offset, s.topic, ifnull(s.key, ''), s.payload, s.created_at, c.attempts, coalesce(c.last_error, ''), c.deadline_ms
FROM _honkerx_group_claims AS c INDEXED BY _honkerx_group_claims_dead CROSS JOIN _honker_stream AS s ON s.offset = c.offset
WHERE c.group_id = ?1 AND c.state = 2 AND c.offset > ?2 ORDER BY c.offset LIMIT ?3 + 0`

// Dead reads up to limit dead events above after, in order, as far as pageBytes allows.
func (Groups) Dead(ctx context.Context, q Querier, group, after int64, limit int) ([]row.DeadDelivery, error) {
	var out []row.DeadDelivery
	size := 0
	err := each(ctx, q, sqlDeadDeliveries, func(rows *sql.Rows) error {
		var d row.DeadDelivery
		err := rows.Scan(&d.Offset, &d.Topic, &d.Key, &d.Payload, (*number)(&d.CreatedAt), (*number)(&d.Attempts), &d.LastError, (*number)(&d.DiedMS))
		if err != nil {
			return err
		}
		out = append(out, d)
		if size += len(d.Payload) + len(d.LastError); size >= pageBytes {
			return errPageFull
		}
		return nil
	}, group, after, limit)
	if errors.Is(err, errPageFull) {
		err = nil
	}
	return out, err
}

// By primary key.
const (
	sqlRevive = `UPDATE _honkerx_group_claims SET state = 1, token = ?3, deadline_ms = ?4, attempts = 0
WHERE group_id = ?1 AND offset = ?2 AND state = 2`

	sqlDropDead = `DELETE FROM _honkerx_group_claims WHERE group_id = ?1 AND offset = ?2 AND state = 2`
)

// Revive lets a dead event be claimed again; false when there is none.
func (Groups) Revive(ctx context.Context, q Querier, group, offset, nowMS int64) (bool, error) {
	epoch, err := nextEpoch(ctx, q, group)
	if err != nil {
		return false, err
	}
	n, err := affected(ctx, q, sqlRevive, group, offset, epoch, nowMS)
	return n > 0, err
}

// DropDead deletes a dead event from the group; false when there is none.
func (Groups) DropDead(ctx context.Context, q Querier, group, offset int64) (bool, error) {
	n, err := affected(ctx, q, sqlDropDead, group, offset)
	return n > 0, err
}
