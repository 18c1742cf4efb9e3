package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/honker-go/honker/internal/row"
)

// Groups are the statements on _honkerx_groups, _honkerx_group_members and
// _honkerx_group_claims.
type Groups struct{}

// The column of the epoch is named turn in the file.
const groupColumns = `SELECT id, topic, name, cursor, turn, coalesce(filter, '') FROM _honkerx_groups `

const (
	sqlGetGroup  = groupColumns + `WHERE topic = ?1 AND name = ?2`
	sqlGroupByID = groupColumns + `WHERE id = ?1`
	sqlGroups    = groupColumns + `WHERE topic = ?1 ORDER BY name`
	sqlAllGroups = groupColumns + `ORDER BY topic, name`
)

func groups(ctx context.Context, q Querier, query string, args ...any) (out []row.Group, err error) {
	err = each(ctx, q, query, func(rows *sql.Rows) error {
		var g row.Group
		var text string
		err := rows.Scan(&g.ID, &g.Topic, &g.Name, (*number)(&g.Cursor), (*number)(&g.Epoch), &text)
		g.Filter, g.Unreadable = parseFilter(text)
		out = append(out, g)
		return err
	}, args...)
	return out, err
}

// Get finds a group by its name.
func (Groups) Get(ctx context.Context, q Querier, topic, name string) (row.Group, error) {
	return oneGroup(groups(ctx, q, sqlGetGroup, topic, name))
}

// groupByID finds a group by its id. The group of a member may have been deleted.
func groupByID(ctx context.Context, q Querier, id int64) (row.Group, error) {
	return oneGroup(groups(ctx, q, sqlGroupByID, id))
}

func oneGroup(gs []row.Group, err error) (row.Group, error) {
	if err != nil {
		return row.Group{}, err
	}
	if len(gs) == 0 {
		return row.Group{}, fmt.Errorf("the group: %w", ErrNotFound)
	}
	return gs[0], gs[0].Unreadable
}

// List returns the groups of one topic, or of one pattern, by name.
func (Groups) List(ctx context.Context, q Querier, topic string) ([]row.Group, error) {
	return groups(ctx, q, sqlGroups, topic)
}

// All returns the groups of all topics and patterns, by topic and name.
func (Groups) All(ctx context.Context, q Querier) ([]row.Group, error) {
	return groups(ctx, q, sqlAllGroups)
}

const sqlAddGroup = `INSERT INTO _honkerx_groups (topic, name, cursor, filter, created_ms) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (topic, name) DO UPDATE SET filter = excluded.filter WHERE filter IS NOT excluded.filter`

// Add makes a group that begins above cursor, unless there is one, and sets its filter.
func (g Groups) Add(ctx context.Context, q Querier, topic, name string, cursor int64, f *row.Filter, nowMS int64) (row.Group, error) {
	if _, err := q.ExecContext(ctx, sqlAddGroup, topic, name, cursor, f.Text(), nowMS); err != nil {
		return row.Group{}, err
	}
	return g.Get(ctx, q, topic, name)
}

var sqlDropGroup = []string{
	`DELETE FROM _honkerx_group_members WHERE group_id = ?1`,
	`DELETE FROM _honkerx_groups WHERE id = ?1`,
}

// Drop removes a group and its members. What they hold is left to DropClaims: there may be
// much of it. No later group has the same id.
func (Groups) Drop(ctx context.Context, q Querier, id int64) error {
	for _, statement := range sqlDropGroup {
		if _, err := q.ExecContext(ctx, statement, id); err != nil {
			return err
		}
	}
	return nil
}

const sqlDropGroupClaims = `DELETE FROM _honkerx_group_claims WHERE group_id = ?1 AND offset IN
  (SELECT offset FROM _honkerx_group_claims NOT INDEXED WHERE group_id = ?1 ORDER BY offset LIMIT ?2 + 0)`

// DropClaims deletes up to limit of what a dropped group has held, and counts it.
func (Groups) DropClaims(ctx context.Context, q Querier, group int64, limit int) (int, error) {
	return affected(ctx, q, sqlDropGroupClaims, group, limit)
}

// One seek per group, by primary key.
const sqlClaimsLeft = `WITH RECURSIVE held(id) AS (
    SELECT (SELECT min(group_id) FROM _honkerx_group_claims NOT INDEXED)
    UNION ALL
    SELECT (SELECT min(group_id) FROM _honkerx_group_claims NOT INDEXED WHERE group_id > h.id) FROM held AS h WHERE h.id IS NOT NULL)
SELECT id FROM held WHERE id IS NOT NULL AND id NOT IN (SELECT id FROM _honkerx_groups)`

// Left returns the ids of groups that were dropped by a process that died before it had dropped
// their claims.
func (Groups) Left(ctx context.Context, q Querier) ([]int64, error) {
	return returnedIDs(ctx, q, sqlClaimsLeft, 0)
}

// The row of another instance is taken over only once it has expired: a member that has not
// been touched for so long has left, and its name is free.
const sqlTouchMember = `INSERT INTO _honkerx_group_members (group_id, name, instance, joined_ms, expires_ms)
SELECT id, ?2, ?3, ?4, ?5 FROM _honkerx_groups WHERE id = ?1
ON CONFLICT (group_id, name) DO UPDATE SET expires_ms = excluded.expires_ms, instance = excluded.instance,
  joined_ms = iif(instance = excluded.instance, joined_ms, excluded.joined_ms)
WHERE instance = excluded.instance OR expires_ms < ?4`

// TouchMember lets m be a member until expiresMS; false when another instance has the name.
// It is ErrNotFound when there is no such group.
func (Groups) TouchMember(ctx context.Context, q Querier, m row.Member, nowMS, expiresMS int64) (bool, error) {
	n, err := affected(ctx, q, sqlTouchMember, m.Group, m.Name, m.Instance, nowMS, expiresMS)
	if err != nil || n > 0 {
		return n > 0, err
	}
	_, err = groupByID(ctx, q, m.Group) // no row: the name is taken, or the group is gone
	return false, err
}

const sqlGetMember = `SELECT instance, expires_ms FROM _honkerx_group_members WHERE group_id = ?1 AND name = ?2`

// Holder returns which instance has a member's name, and until when it is known to; false when
// the name is free.
func (Groups) Holder(ctx context.Context, q Querier, m row.Member) (instance string, expiresMS int64, found bool, err error) {
	found, err = one(ctx, q, sqlGetMember, []any{m.Group, m.Name}, &instance, (*number)(&expiresMS))
	return instance, expiresMS, found, err
}

const sqlDropSilent = `DELETE FROM _honkerx_group_members WHERE group_id = ?1 AND expires_ms < ?2`

// DropSilent deletes the members of a group that have expired.
func (Groups) DropSilent(ctx context.Context, q Querier, group, nowMS int64) error {
	_, err := q.ExecContext(ctx, sqlDropSilent, group, nowMS)
	return err
}

const (
	sqlDropMember = `DELETE FROM _honkerx_group_members WHERE group_id = ?1 AND name = ?2 AND instance = ?3`

	sqlReturnAll = `UPDATE _honkerx_group_claims
SET state = 1, token = ?3, deadline_ms = ?4, attempts = attempts - 1
WHERE group_id = ?1 AND state = 0 AND holder = ?2 AND deadline_ms >= ?4`
)

// Leave ends a membership. What the member holds can be claimed again at once, as if it had
// not been given out.
func (Groups) Leave(ctx context.Context, q Querier, m row.Member, nowMS int64) error {
	if _, err := q.ExecContext(ctx, sqlDropMember, m.Group, m.Name, m.Instance); err != nil {
		return err
	}
	epoch, err := nextEpoch(ctx, q, m.Group)
	if err != nil {
		return err
	}
	_, err = q.ExecContext(ctx, sqlReturnAll, m.Group, m.Instance, epoch, nowMS)
	return err
}

const sqlMembers = `SELECT name FROM _honkerx_group_members WHERE group_id = ?1 AND expires_ms >= ?2 ORDER BY name`

// Members lists the names of the members that have not expired.
func (Groups) Members(ctx context.Context, q Querier, group, nowMS int64) ([]string, error) {
	return texts(ctx, q, sqlMembers, group, nowMS)
}

// sqlMemberStates reads what is held once, by the index of the deadlines.
const sqlMemberStates = `SELECT m.name, m.instance, m.joined_ms, m.expires_ms, coalesce(h.n, 0), coalesce(h.first, 0)
FROM _honkerx_group_members AS m LEFT JOIN (
  SELECT holder, count(*) AS n, min(deadline_ms) AS first FROM _honkerx_group_claims
  WHERE group_id = ?1 AND state = 0 AND deadline_ms >= ?2 GROUP BY holder) AS h ON h.holder = m.instance
WHERE m.group_id = ?1 ORDER BY m.name LIMIT ?3 + 0`

// MemberStates returns up to limit members of a group by name, those included that have expired.
func (Groups) MemberStates(ctx context.Context, q Querier, group, nowMS int64, limit int) (all []row.MemberState, err error) {
	err = each(ctx, q, sqlMemberStates, func(rows *sql.Rows) error {
		var m row.MemberState
		err := rows.Scan(&m.Name, &m.Instance, (*number)(&m.JoinedMS), (*number)(&m.ExpiresMS), &m.Leased, (*number)(&m.FirstMS))
		all = append(all, m)
		return err
	}, group, nowMS, limit)
	return all, err
}

const sqlCounts = `SELECT
  (SELECT count(*) FROM _honkerx_group_claims WHERE group_id = g.id AND state = 0 AND deadline_ms >= ?2),
  (SELECT count(*) FROM _honkerx_group_claims WHERE group_id = g.id AND state < 2),
  (SELECT count(*) FROM _honkerx_group_claims WHERE group_id = g.id AND state = 2),
  g.cursor, min(g.cursor, ` + lowestOpen + `)
FROM _honkerx_groups AS g WHERE g.id = ?1`

// The offset below the first event that is not acked, from the lowest. NOT INDEXED
// keeps the walk on the primary key, in the order of the offsets.
const lowestOpen = `ifnull((SELECT offset - 1 FROM _honkerx_group_claims NOT INDEXED
    WHERE group_id = g.id AND state < 2 ORDER BY offset LIMIT 1), g.cursor)`

// Counts counts the events of a group. An event of a lapsed lease counts as Back,
// although no claim has returned it yet.
func (Groups) Counts(ctx context.Context, q Querier, group, nowMS int64) (c row.Counts, err error) {
	_, err = one(ctx, q, sqlCounts, []any{group, nowMS}, &c.Leased, &c.Back, &c.Dead, (*number)(&c.Cursor), (*number)(&c.LowWater))
	c.Back -= c.Leased
	return c, err
}

const sqlNextEpoch = `UPDATE _honkerx_groups SET turn = turn + 1 WHERE id = ?1 RETURNING turn`

// nextEpoch raises the epoch of a group: what is returned in the new epoch is ordered after
// all that was returned before, and no holder of an older one can settle it. It is 0 for a
// group that was deleted, and holds nothing.
func nextEpoch(ctx context.Context, q Querier, group int64) (epoch int64, err error) {
	raised, err := one(ctx, q, sqlNextEpoch, []any{group}, (*number)(&epoch))
	if err != nil || raised {
		return epoch, err
	}
	if _, err := groupByID(ctx, q, group); !errors.Is(err, ErrNotFound) {
		return 0, errors.Join(err, ErrStuck)
	}
	return 0, nil
}

// Two seeks for each group: the first deadline of the held events, and the first of the
// returned ones.
const sqlGroupStates = `SELECT k.value,
  (SELECT deadline_ms FROM _honkerx_group_claims WHERE group_id = k.value AND state = 0 ORDER BY deadline_ms LIMIT 1),
  (SELECT deadline_ms FROM _honkerx_group_claims WHERE group_id = k.value AND state = 1 ORDER BY deadline_ms LIMIT 1)
FROM json_each(?1) AS k`

// States returns the state of each group, by one statement.
func (Groups) States(ctx context.Context, q Querier, ids []int64, nowMS int64) ([]row.GroupState, error) {
	var out []row.GroupState
	err := each(ctx, q, sqlGroupStates, func(rows *sql.Rows) error {
		var s row.GroupState
		held, waits := moment(Unbounded), moment(Unbounded)
		err := rows.Scan(&s.ID, &held, &waits)
		s.Ready = int64(held) < nowMS || int64(waits) <= nowMS
		if held < Unbounded {
			held++ // a lease holds through its deadline
		}
		if first := min(held, waits); first < Unbounded {
			s.NextMS = int64(first)
		}
		out = append(out, s)
		return err
	}, idList(ids))
	return out, err
}

// Ready tells whether a claim of one group would do something, and otherwise when an event
// that was given out may come back, as unix milliseconds; 0: never.
func (g Groups) Ready(ctx context.Context, q Querier, id, nowMS int64) (ready bool, nextMS int64, err error) {
	group, err := groupByID(ctx, q, id)
	if err != nil {
		return false, 0, err
	}
	states, err := g.States(ctx, q, []int64{id}, nowMS)
	if err != nil {
		return false, 0, err
	}
	head, err := groupHead(ctx, q, group)
	return states[0].Ready || head > group.Cursor, states[0].NextMS, err
}

// head is the last offset that the group's cursor can reach. The cursor of a pattern moves
// over the events of all topics, so there the last event of any topic counts.
func groupHead(ctx context.Context, q Querier, g row.Group) (int64, error) {
	if g.Selection().Pattern() {
		return Streams{}.Last(ctx, q)
	}
	return Streams{}.Head(ctx, q, g.Selection())
}
