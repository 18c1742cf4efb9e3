package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/honker-go/honker/internal/row"
)

// Groups provides the statements on _honkerx_groups, _honkerx_group_members and _honkerx_group_claims.
type Groups struct{}

// The epoch is stored in the column turn.
const groupColumns = `SELECT id, topic, name, cursor, turn, coalesce(filter, '') FROM _honkerx_groups `

const (
	sqlGetGroup  = groupColumns + `WHERE topic = ?1 AND name = ?2`
	sqlGroupByID = groupColumns + `WHERE id = ?1`
	sqlGroups    = groupColumns + `WHERE topic = ?1 ORDER BY name`
	sqlAllGroups = groupColumns + `ORDER BY topic, name`
)

func groups(ctx context.Context, q row.Querier, query string, args ...any) (out []row.Group, err error) {
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

// Get returns a group by its name, or ErrNotFound.
func (Groups) Get(ctx context.Context, q row.Querier, topic, name string) (row.Group, error) {
	return oneGroup(groups(ctx, q, sqlGetGroup, topic, name))
}

// groupByID returns a group by its id. It returns ErrNotFound if the group has been deleted, which can
// happen while a process is still a member.
func groupByID(ctx context.Context, q row.Querier, id int64) (row.Group, error) {
	return oneGroup(groups(ctx, q, sqlGroupByID, id))
}

// oneGroup returns the first of gs. It fails if there is none, or if the filter of the group is unreadable.
func oneGroup(gs []row.Group, err error) (row.Group, error) {
	if err != nil {
		return row.Group{}, err
	}
	if len(gs) == 0 {
		return row.Group{}, fmt.Errorf("group %w", row.ErrNotFound)
	}
	return gs[0], gs[0].Unreadable
}

// List returns the groups of a topic or pattern, by name.
func (Groups) List(ctx context.Context, q row.Querier, topic string) ([]row.Group, error) {
	return groups(ctx, q, sqlGroups, topic)
}

// All returns all groups, by topic or pattern and by name.
func (Groups) All(ctx context.Context, q row.Querier) ([]row.Group, error) {
	return groups(ctx, q, sqlAllGroups)
}

const sqlAddGroup = `INSERT INTO _honkerx_groups (topic, name, cursor, filter, created_ms) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (topic, name) DO UPDATE SET filter = excluded.filter WHERE filter IS NOT excluded.filter`

// Add creates a group with the given cursor unless it exists, sets its filter, and returns the group.
func (g Groups) Add(ctx context.Context, q row.Querier, topic, name string, cursor int64, f *row.Filter, nowMS int64) (row.Group, error) {
	if _, err := q.ExecContext(ctx, sqlAddGroup, topic, name, cursor, f.Text(), nowMS); err != nil {
		return row.Group{}, err
	}
	return g.Get(ctx, q, topic, name)
}

var sqlDropGroup = []string{
	`DELETE FROM _honkerx_group_members WHERE group_id = ?1`,
	`DELETE FROM _honkerx_groups WHERE id = ?1`,
}

// Drop deletes a group and its members. The claims of the group are left to DropClaims because there may be
// many. Group ids are never reused.
func (Groups) Drop(ctx context.Context, q row.Querier, id int64) error {
	for _, statement := range sqlDropGroup {
		if _, err := q.ExecContext(ctx, statement, id); err != nil {
			return err
		}
	}
	return nil
}

const sqlDropGroupClaims = `DELETE FROM _honkerx_group_claims WHERE group_id = ?1 AND offset IN
  (SELECT offset FROM _honkerx_group_claims NOT INDEXED WHERE group_id = ?1 ORDER BY offset LIMIT ?2 + 0)`

// DropClaims deletes up to limit claims of a dropped group and returns their number.
func (Groups) DropClaims(ctx context.Context, q row.Querier, group int64, limit int) (int, error) {
	return affected(ctx, q, sqlDropGroupClaims, group, limit)
}

// Costs one seek per group, using the primary key.
const sqlClaimsLeft = `WITH RECURSIVE held(id) AS (
    SELECT (SELECT min(group_id) FROM _honkerx_group_claims NOT INDEXED)
    UNION ALL
    SELECT (SELECT min(group_id) FROM _honkerx_group_claims NOT INDEXED WHERE group_id > h.id) FROM held AS h WHERE h.id IS NOT NULL)
SELECT id FROM held WHERE id IS NOT NULL AND id NOT IN (SELECT id FROM _honkerx_groups)`

// Left returns the ids of dropped groups that still have claims. A process that dies between Drop and
// DropClaims leaves such groups behind.
func (Groups) Left(ctx context.Context, q row.Querier) ([]int64, error) {
	return returnedIDs(ctx, q, sqlClaimsLeft, 0)
}

// The row of another instance is replaced only after it has expired. A member that has not been touched for
// that long counts as gone, and its name is free.
const sqlTouchMember = `INSERT INTO _honkerx_group_members (group_id, name, instance, joined_ms, expires_ms)
SELECT id, ?2, ?3, ?4, ?5 FROM _honkerx_groups WHERE id = ?1
ON CONFLICT (group_id, name) DO UPDATE SET expires_ms = excluded.expires_ms, instance = excluded.instance,
  joined_ms = iif(instance = excluded.instance, joined_ms, excluded.joined_ms)
WHERE instance = excluded.instance OR expires_ms < ?4`

// TouchMember creates or renews the membership of m until expiresMS. It returns false if another instance
// has the name, and ErrNotFound if the group does not exist.
func (Groups) TouchMember(ctx context.Context, q row.Querier, m row.Member, nowMS, expiresMS int64) (bool, error) {
	n, err := affected(ctx, q, sqlTouchMember, m.Group, m.Name, m.Instance, nowMS, expiresMS)
	if err != nil || n > 0 {
		return n > 0, err
	}
	_, err = groupByID(ctx, q, m.Group) // no row has changed because the name is taken or the group is gone
	return false, err
}

const sqlGetMember = `SELECT instance, expires_ms FROM _honkerx_group_members WHERE group_id = ?1 AND name = ?2`

// Holder returns the instance that has a member's name and the time at which its membership expires. It
// returns false if the name is free.
func (Groups) Holder(ctx context.Context, q row.Querier, m row.Member) (instance string, expiresMS int64, found bool, err error) {
	found, err = one(ctx, q, sqlGetMember, []any{m.Group, m.Name}, &instance, (*number)(&expiresMS))
	return instance, expiresMS, found, err
}

const sqlDropSilent = `DELETE FROM _honkerx_group_members WHERE group_id = ?1 AND expires_ms < ?2`

// DropSilent deletes the expired members of a group.
func (Groups) DropSilent(ctx context.Context, q row.Querier, group, nowMS int64) error {
	_, err := q.ExecContext(ctx, sqlDropSilent, group, nowMS)
	return err
}

const (
	sqlDropMember = `DELETE FROM _honkerx_group_members WHERE group_id = ?1 AND name = ?2 AND instance = ?3`

	sqlReturnAll = `UPDATE _honkerx_group_claims
SET state = 1, token = ?3, deadline_ms = ?4, attempts = attempts - 1
WHERE group_id = ?1 AND state = 0 AND holder = ?2 AND deadline_ms >= ?4`
)

// Leave deletes a member. Its leased events can be claimed again at once, and the attempt is not counted.
func (Groups) Leave(ctx context.Context, q row.Querier, m row.Member, nowMS int64) error {
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

// Members returns the names of the members that have not expired, in order.
func (Groups) Members(ctx context.Context, q row.Querier, group, nowMS int64) ([]string, error) {
	return texts(ctx, q, sqlMembers, group, nowMS)
}

// sqlMemberStates reads the leased events once for all members, by the index of deadlines.
const sqlMemberStates = `SELECT m.name, m.instance, m.joined_ms, m.expires_ms, coalesce(h.n, 0), coalesce(h.first, 0)
FROM _honkerx_group_members AS m LEFT JOIN (
  SELECT holder, count(*) AS n, min(deadline_ms) AS first FROM _honkerx_group_claims
  WHERE group_id = ?1 AND state = 0 AND deadline_ms >= ?2 GROUP BY holder) AS h ON h.holder = m.instance
WHERE m.group_id = ?1 ORDER BY m.name LIMIT ?3 + 0`

// MemberStates returns up to limit members of a group by name, including expired members.
func (Groups) MemberStates(ctx context.Context, q row.Querier, group, nowMS int64, limit int) (all []row.MemberState, err error) {
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

// The offset just below the lowest event that is not acked. NOT INDEXED keeps the search on the primary
// key, in the order of offsets.
const lowestOpen = `ifnull((SELECT offset - 1 FROM _honkerx_group_claims NOT INDEXED
    WHERE group_id = g.id AND state < 2 ORDER BY offset LIMIT 1), g.cursor)`

// Counts returns the numbers of events of a group by state. An event whose lease has lapsed counts as Back,
// although no claim has returned it yet.
func (Groups) Counts(ctx context.Context, q row.Querier, group, nowMS int64) (c row.Counts, err error) {
	_, err = one(ctx, q, sqlCounts, []any{group, nowMS}, &c.Leased, &c.Back, &c.Dead, (*number)(&c.Cursor), (*number)(&c.LowWater))
	c.Back -= c.Leased
	return c, err
}

const sqlNextEpoch = `UPDATE _honkerx_groups SET turn = turn + 1 WHERE id = ?1 RETURNING turn`

// nextEpoch increments the epoch of a group. Events returned in the new epoch are ordered after all events
// returned before, and holders of older epochs can no longer settle them. It returns 0 for a deleted group,
// which has no leases.
func nextEpoch(ctx context.Context, q row.Querier, group int64) (epoch int64, err error) {
	raised, err := one(ctx, q, sqlNextEpoch, []any{group}, (*number)(&epoch))
	if err != nil || raised {
		return epoch, err
	}
	if _, err := groupByID(ctx, q, group); !errors.Is(err, row.ErrNotFound) {
		return 0, errors.Join(err, row.ErrStuck)
	}
	return 0, nil
}

// Two seeks per group: the first deadline of the leased events, and the first of the returned events.
const sqlGroupStates = `SELECT k.value,
  (SELECT deadline_ms FROM _honkerx_group_claims WHERE group_id = k.value AND state = 0 ORDER BY deadline_ms LIMIT 1),
  (SELECT deadline_ms FROM _honkerx_group_claims WHERE group_id = k.value AND state = 1 ORDER BY deadline_ms LIMIT 1)
FROM json_each(?1) AS k`

// States returns the state of each group in ids, by a single statement.
func (Groups) States(ctx context.Context, q row.Querier, ids []int64, nowMS int64) ([]row.GroupState, error) {
	var out []row.GroupState
	err := each(ctx, q, sqlGroupStates, func(rows *sql.Rows) error {
		var s row.GroupState
		held, waits := moment(row.Unbounded), moment(row.Unbounded)
		err := rows.Scan(&s.ID, &held, &waits)
		s.Ready = int64(held) < nowMS || int64(waits) <= nowMS
		if held < row.Unbounded {
			held++ // the lease is valid until the end of its deadline
		}
		if first := min(held, waits); first < row.Unbounded {
			s.NextMS = int64(first)
		}
		out = append(out, s)
		return err
	}, idList(ids))
	return out, err
}

// Ready reports whether a claim of the group would find work. nextMS is the unix time in milliseconds at
// which a leased or returned event may become claimable, or 0 if there is none.
func (g Groups) Ready(ctx context.Context, q row.Querier, id, nowMS int64) (ready bool, nextMS int64, err error) {
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

// groupHead returns the highest offset that the group's cursor can reach. The cursor of a pattern moves
// over the events of all topics, so for a pattern it is the last offset of the stream.
func groupHead(ctx context.Context, q row.Querier, g row.Group) (int64, error) {
	if g.Selection().Pattern() {
		return Streams{}.Last(ctx, q)
	}
	return Streams{}.Head(ctx, q, g.Selection())
}
