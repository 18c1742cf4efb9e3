package streams

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/rows"
)

// Groups contains the statements for _honkerx_groups, _honkerx_group_members and _honkerx_group_claims.
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
	err = rows.Each(ctx, q, query, func(r *sql.Rows) error {
		var g row.Group
		var text string
		err := r.Scan(&g.ID, &g.Topic, &g.Name, (*rows.Number)(&g.Cursor), (*rows.Number)(&g.Epoch), &text)
		g.Filter, g.Unreadable = parseFilter(text)
		out = append(out, g)
		return err
	}, args...)
	return out, err
}

// groupByID returns the group with the given ID. It returns ErrNotFound if the group has been deleted, which can
// happen while a process is still a member.
func groupByID(ctx context.Context, q row.Querier, id int64) (row.Group, error) {
	return oneGroup(groups(ctx, q, sqlGroupByID, id))
}

// oneGroup returns the first of gs. It fails if there is none, or if the group's filter is unreadable.
func oneGroup(gs []row.Group, err error) (row.Group, error) {
	if err != nil {
		return row.Group{}, err
	}
	if len(gs) == 0 {
		return row.Group{}, fmt.Errorf("group %w", row.ErrNotFound)
	}
	return gs[0], gs[0].Unreadable
}

// List returns the group with the given name on a topic or pattern, or nothing if it does not exist. If
// name is empty, it returns all of the topic's groups, sorted by name. If topic is empty as well, it
// returns all groups, sorted by topic or pattern, then by name.
func (Groups) List(ctx context.Context, q row.Querier, topic, name string) ([]row.Group, error) {
	switch {
	case name != "":
		return groups(ctx, q, sqlGetGroup, topic, name)
	case topic != "":
		return groups(ctx, q, sqlGroups, topic)
	}
	return groups(ctx, q, sqlAllGroups)
}

const sqlAddGroup = `INSERT INTO _honkerx_groups (topic, name, cursor, filter, created_ms) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (topic, name) DO UPDATE SET filter = excluded.filter WHERE filter IS NOT excluded.filter`

// add creates j's group if it does not exist, sets its filter, and returns its ID. start is where a new group begins.
func (gs Groups) add(ctx context.Context, q row.Querier, j row.GroupJoin, now time.Time) (id int64, start row.Start, err error) {
	g, err := oneGroup(gs.List(ctx, q, j.Topic, j.Name))
	begin := g.Cursor
	if errors.Is(err, row.ErrNotFound) {
		start, err = Streams{}.Start(ctx, q, row.Selection{Topic: j.Topic}, j.From)
		begin = start.Offset
	}
	if err != nil {
		return 0, start, err
	}
	if _, err := q.ExecContext(ctx, sqlAddGroup, j.Topic, j.Name, begin, filterText(j.Filter), now.UnixMilli()); err != nil {
		return 0, start, err
	}
	g, err = oneGroup(gs.List(ctx, q, j.Topic, j.Name))
	return g.ID, start, err
}

// Join creates a group if it does not exist, sets its filter, deletes its expired members, and adds
// j.Member to it, as Renew does.
func (gs Groups) Join(ctx context.Context, q row.Querier, j row.GroupJoin, now time.Time) (joined row.GroupJoined, err error) {
	if joined.Group, joined.Start, err = gs.add(ctx, q, j, now); err != nil {
		return joined, err
	}
	if _, err := q.ExecContext(ctx, sqlDropSilent, joined.Group, now.UnixMilli()); err != nil {
		return joined, err
	}
	j.Member.Group = joined.Group
	joined.Membership, err = gs.Renew(ctx, q, j.Member, j.Expires, now)
	return joined, err
}

var sqlDropGroup = []string{
	`DELETE FROM _honkerx_group_members WHERE group_id = ?1`,
	`DELETE FROM _honkerx_groups WHERE id = ?1`,
}

const sqlDropGroupClaims = `DELETE FROM _honkerx_group_claims WHERE group_id = ?1 AND offset IN
  (SELECT offset FROM _honkerx_group_claims NOT INDEXED WHERE group_id = ?1 ORDER BY offset LIMIT ?2 + 0)`

// Drop deletes a group, its members, and up to limit of its claims, and returns the number of deleted claims. If
// there may be more claims, Drop must be called again with the same ID. Group IDs are never reused.
func (Groups) Drop(ctx context.Context, q row.Querier, id int64, limit int) (int, error) {
	for _, statement := range sqlDropGroup {
		if _, err := q.ExecContext(ctx, statement, id); err != nil {
			return 0, err
		}
	}
	return rows.Affected(ctx, q, sqlDropGroupClaims, id, limit)
}

// sqlClaimsLeft selects the dropped groups that still have claims. A process that dies between two calls to Drop
// leaves such groups behind. The query costs a seek for each group, using the primary key.
const sqlClaimsLeft = `WITH RECURSIVE held(id) AS (
    SELECT (SELECT min(group_id) FROM _honkerx_group_claims NOT INDEXED)
    UNION ALL
    SELECT (SELECT min(group_id) FROM _honkerx_group_claims NOT INDEXED WHERE group_id > h.id) FROM held AS h WHERE h.id IS NOT NULL)
SELECT id FROM held WHERE id IS NOT NULL AND id NOT IN (SELECT id FROM _honkerx_groups)`

// Another instance's row is replaced only after it has expired. A member that has not renewed its
// membership for that long counts as gone, and its name is free.
const sqlTouchMember = `INSERT INTO _honkerx_group_members (group_id, name, instance, joined_ms, expires_ms)
SELECT id, ?2, ?3, ?4, ?5 FROM _honkerx_groups WHERE id = ?1
ON CONFLICT (group_id, name) DO UPDATE SET expires_ms = excluded.expires_ms, instance = excluded.instance,
  joined_ms = iif(instance = excluded.instance, joined_ms, excluded.joined_ms)
WHERE instance = excluded.instance OR expires_ms < ?4`

// Renew creates or renews m's membership until expires. If another instance has the name, it reports the
// holder. It returns ErrNotFound if the group does not exist.
func (Groups) Renew(ctx context.Context, q row.Querier, m row.Member, expires, now time.Time) (s row.Membership, err error) {
	n, err := rows.Affected(ctx, q, sqlTouchMember, m.Group, m.Name, m.Instance, now.UnixMilli(), rows.MilliUp(expires))
	if s.Kept = n > 0; err != nil || s.Kept {
		return s, err
	}
	// No row has changed because the name is taken or the group is gone.
	if _, err := groupByID(ctx, q, m.Group); err != nil {
		return s, err
	}
	_, err = rows.One(ctx, q, sqlGetMember, []any{m.Group, m.Name}, &s.Holder, (*rows.Milli)(&s.Expires))
	return s, err
}

const sqlGetMember = `SELECT instance, expires_ms FROM _honkerx_group_members WHERE group_id = ?1 AND name = ?2`

const sqlDropSilent = `DELETE FROM _honkerx_group_members WHERE group_id = ?1 AND expires_ms < ?2`

const (
	sqlDropMember = `DELETE FROM _honkerx_group_members WHERE group_id = ?1 AND name = ?2 AND instance = ?3`

	sqlReturnAll = `UPDATE _honkerx_group_claims
SET state = 1, token = ?3, deadline_ms = ?4, attempts = attempts - 1
WHERE group_id = ?1 AND state = 0 AND holder = ?2 AND deadline_ms >= ?4`
)

// Leave deletes a member. The events leased to it can be claimed again immediately, and the attempts don't count.
func (Groups) Leave(ctx context.Context, q row.Querier, m row.Member, now time.Time) error {
	if _, err := q.ExecContext(ctx, sqlDropMember, m.Group, m.Name, m.Instance); err != nil {
		return err
	}
	epoch, err := nextEpoch(ctx, q, m.Group)
	if err != nil {
		return err
	}
	_, err = q.ExecContext(ctx, sqlReturnAll, m.Group, m.Instance, epoch, now.UnixMilli())
	return err
}

// sqlMemberStates reads the leased events once for all members, by the index of deadlines.
const sqlMemberStates = `SELECT m.name, m.instance, m.joined_ms, m.expires_ms, m.expires_ms < ?2, coalesce(h.n, 0), coalesce(h.first, 0)
FROM _honkerx_group_members AS m LEFT JOIN (
  SELECT holder, count(*) AS n, min(deadline_ms) AS first FROM _honkerx_group_claims
  WHERE group_id = ?1 AND state = 0 AND deadline_ms >= ?2 GROUP BY holder) AS h ON h.holder = m.instance
WHERE m.group_id = ?1 ORDER BY m.name LIMIT ?3 + 0`

// memberStates returns up to limit of a group's members by name, including expired members. A negative
// limit means no limit.
func memberStates(ctx context.Context, q row.Querier, group int64, limit int, nowMS int64) (all []row.MemberState, err error) {
	err = rows.Each(ctx, q, sqlMemberStates, func(r *sql.Rows) error {
		var m row.MemberState
		err := r.Scan(&m.Name, &m.Instance, (*rows.Milli)(&m.JoinedAt), (*rows.Milli)(&m.Expires), &m.Expired, &m.Leased, (*rows.Milli)(&m.FirstEnd))
		all = append(all, m)
		return err
	}, group, nowMS, limit)
	return all, err
}

const sqlCounts = `SELECT
  (SELECT count(*) FROM _honkerx_group_claims WHERE group_id = g.id AND state = 0 AND deadline_ms >= ?2),
  (SELECT count(*) FROM _honkerx_group_claims WHERE group_id = g.id AND state < 2),
  (SELECT count(*) FROM _honkerx_group_claims WHERE group_id = g.id AND state = 2),
  g.cursor, min(g.cursor, ` + LowestOpen + `)
FROM _honkerx_groups AS g WHERE g.id = ?1`

// LowestOpen is the offset just below the lowest event that isn't acked. NOT INDEXED keeps the search on the primary
// key, in offset order.
const LowestOpen = `ifnull((SELECT offset - 1 FROM _honkerx_group_claims NOT INDEXED
    WHERE group_id = g.id AND state < 2 ORDER BY offset LIMIT 1), g.cursor)`

// Progress returns the number of a group's events in each state, and some of its members, including expired members.
// The argument members is the maximum number of members to return; a negative value means all. An event whose lease
// has lapsed counts as Back, even if no claim has returned it yet.
func (Groups) Progress(ctx context.Context, q row.Querier, group int64, members int, now time.Time) (p row.GroupProgress, err error) {
	_, err = rows.One(ctx, q, sqlCounts, []any{group, now.UnixMilli()}, &p.Leased, &p.Back, &p.Dead, (*rows.Number)(&p.Cursor), (*rows.Number)(&p.LowWater))
	if err != nil {
		return p, err
	}
	p.Back -= p.Leased
	p.Members, err = memberStates(ctx, q, group, members, now.UnixMilli())
	return p, err
}

const sqlNextEpoch = `UPDATE _honkerx_groups SET turn = turn + 1 WHERE id = ?1 RETURNING turn`

// nextEpoch increments a group's epoch. Events returned in the new epoch are ordered after all events
// returned before, and holders of older epochs can no longer settle them. It returns 0 for a deleted group,
// which has no leases.
func nextEpoch(ctx context.Context, q row.Querier, group int64) (epoch int64, err error) {
	raised, err := rows.One(ctx, q, sqlNextEpoch, []any{group}, (*rows.Number)(&epoch))
	if err != nil || raised {
		return epoch, err
	}
	if _, err := groupByID(ctx, q, group); !errors.Is(err, row.ErrNotFound) {
		return 0, errors.Join(err, row.ErrStuck)
	}
	return 0, nil
}

// sqlGroupStates makes two seeks for each group: for the first deadline of the leased events, and for that of the
// returned events.
const sqlGroupStates = `SELECT k.value,
  (SELECT deadline_ms FROM _honkerx_group_claims WHERE group_id = k.value AND state = 0 ORDER BY deadline_ms LIMIT 1),
  (SELECT deadline_ms FROM _honkerx_group_claims WHERE group_id = k.value AND state = 1 ORDER BY deadline_ms LIMIT 1)
FROM json_each(?1) AS k`

// States reports for each group in ids, in a single statement, whether a claim would find a returned event, and when
// a leased or returned event may become claimable. It ignores new events, because their topic already wakes the
// members.
func (Groups) States(ctx context.Context, q row.Querier, ids []int64, now time.Time) ([]row.GroupState, error) {
	var out []row.GroupState
	nowMS := now.UnixMilli()
	err := rows.Each(ctx, q, sqlGroupStates, func(r *sql.Rows) error {
		var s row.GroupState
		held, waits := rows.Moment(row.Unbounded), rows.Moment(row.Unbounded)
		err := r.Scan(&s.ID, &held, &waits)
		s.Ready = int64(held) < nowMS || int64(waits) <= nowMS
		if held < row.Unbounded {
			held++ // the lease is valid until its deadline has passed
		}
		if first := min(held, waits); first < row.Unbounded {
			s.Next = row.InstantMS(int64(first))
		}
		out = append(out, s)
		return err
	}, rows.IDList(ids))
	return out, err
}

// Ready reports whether a claim by the group would find work, and when a leased or returned event may
// become claimable. It ignores the filter, so a claim may find only events that the filter excludes. It
// returns ErrNotFound if the group does not exist.
func (g Groups) Ready(ctx context.Context, q row.Querier, id int64, now time.Time) (row.GroupState, error) {
	group, err := groupByID(ctx, q, id)
	if err != nil {
		return row.GroupState{}, err
	}
	states, err := g.States(ctx, q, []int64{id}, now)
	if err != nil {
		return row.GroupState{}, err
	}
	head, err := groupHead(ctx, q, group)
	states[0].Ready = states[0].Ready || head > group.Cursor
	return states[0], err
}

// groupHead returns the highest offset that the group's cursor can reach. A pattern's cursor moves over all
// topics' events, so for a pattern it is the stream's last offset.
func groupHead(ctx context.Context, q row.Querier, g row.Group) (int64, error) {
	if g.Selection().Pattern() {
		return lastEvent(ctx, q)
	}
	return Streams{}.Last(ctx, q, g.Selection())
}

// SweepClaims finishes the deletion of groups.
var SweepClaims = engine.Sweep{Find: findLeftClaims, Take: dropLeftClaims}

func findLeftClaims(ctx context.Context, q row.Querier, _ row.Part, _ time.Time, limit int) ([]int64, error) {
	groups, err := rows.ReturnedIDs(ctx, q, sqlClaimsLeft, 0)
	return groups[:min(len(groups), limit)], err
}

// dropLeftClaims deletes up to limit of the deleted groups' claims.
func dropLeftClaims(ctx context.Context, q row.Querier, _ row.Part, groups []int64, _ time.Time, limit int) (row.Swept, error) {
	n := 0
	for _, group := range groups {
		dropped, err := rows.Affected(ctx, q, sqlDropGroupClaims, group, limit-n)
		if n += dropped; err != nil || n == limit {
			return row.Swept{N: n, More: true}, err
		}
	}
	return row.Swept{N: n}, nil
}
