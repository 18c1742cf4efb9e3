// Package groups contains the statements for groups of consumers, their members, and the events leased to them.
package groups

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/honkerpg/internal/pgstore/streams"
	"github.com/honker-go/honker/internal/row"
)

// Groups contains the statements for the tables grp, grp_turn, member and delivery.
type Groups struct{ pgsql.Schema }

// The epoch of a group is the token of the last claim that moved its cursor.
const groupColumns = `SELECT g.id, g.topic, g.name, t.cursor, t.token, coalesce(g.filter, '') FROM honker.grp g CROSS JOIN LATERAL
  (SELECT t.cursor, t.token FROM honker.grp_turn t WHERE t.group_id = g.id ORDER BY t.group_id DESC, t.token DESC LIMIT 1) t `

const (
	sqlGetGroup  = groupColumns + `WHERE g.topic = $1 AND g.name = $2`
	sqlGroupByID = groupColumns + `WHERE g.id = $1`
	sqlGroups    = groupColumns + `WHERE g.topic = $1 ORDER BY g.name`
	sqlAllGroups = groupColumns + `ORDER BY g.topic, g.name`
)

func (s Groups) groups(ctx context.Context, q row.Querier, query string, args ...any) (all []row.Group, err error) {
	err = pgsql.Each(ctx, q, s.SQL(query), func(r *sql.Rows) error {
		var g row.Group
		var text string
		err := r.Scan(&g.ID, &g.Topic, &g.Name, &g.Cursor, &g.Epoch, &text)
		g.Filter, g.Unreadable = streams.ParseFilter(text)
		all = append(all, g)
		return err
	}, args...)
	return all, err
}

// byID returns the group with the given ID, or ErrNotFound if it has been deleted, which can happen while a process is
// still a member. It fails if the group's filter is unreadable.
func (s Groups) byID(ctx context.Context, q row.Querier, id int64) (row.Group, error) {
	all, err := s.groups(ctx, q, sqlGroupByID, id)
	switch {
	case err != nil:
		return row.Group{}, err
	case len(all) == 0:
		return row.Group{}, fmt.Errorf("group %w", row.ErrNotFound)
	}
	return all[0], all[0].Unreadable
}

// List implements engine.GroupStore.
func (s Groups) List(ctx context.Context, q row.Querier, topic, name string) ([]row.Group, error) {
	switch {
	case name != "":
		return s.groups(ctx, q, sqlGetGroup, topic, name)
	case topic != "":
		return s.groups(ctx, q, sqlGroups, topic)
	}
	return s.groups(ctx, q, sqlAllGroups)
}

const (
	sqlAddGroup = `WITH added AS (
  INSERT INTO honker.grp (created_at, topic, name, filter) VALUES ($1, $2, $3, $4) ON CONFLICT (topic, name) DO NOTHING RETURNING id
)
INSERT INTO honker.grp_turn (group_id, token, cursor) SELECT id, nextval('honker.grp_token'), $5 FROM added RETURNING group_id`

	sqlSetFilter = `UPDATE honker.grp SET filter = $2 WHERE id = $1 AND filter IS DISTINCT FROM $2`
)

// addTries bounds the attempts to add a group that others add and drop at the same time.
const addTries = 10

// add creates j's group if it does not exist, sets its filter, and returns its ID. start is where a new group begins.
func (s Groups) add(ctx context.Context, q row.Querier, j row.GroupJoin, now time.Time) (id int64, start row.Start, err error) {
	if err := streams.HoldCompaction(ctx, q, s.Schema); err != nil {
		return 0, start, err
	}
	filter := sql.NullString{String: j.Filter.Text(), Valid: j.Filter != nil}
	for range addTries {
		all, err := s.List(ctx, q, j.Topic, j.Name)
		if err != nil {
			return 0, start, err
		}
		if len(all) > 0 {
			g := all[0]
			if g.Unreadable == nil {
				_, err = q.ExecContext(ctx, s.SQL(sqlSetFilter), g.ID, filter)
				return g.ID, row.Start{}, err
			}
			return 0, row.Start{}, g.Unreadable
		}
		if start, err = (streams.Streams{Schema: s.Schema}).Start(ctx, q, row.Selection{Topic: j.Topic}, j.From); err != nil {
			return 0, start, err
		}
		args := []any{pgsql.Stamp(now), j.Topic, j.Name, filter, start.Offset}
		if added, err := pgsql.One(ctx, q, s.SQL(sqlAddGroup), args, &id); err != nil || added {
			return id, start, err
		}
	}
	return 0, start, row.ErrNotInserted
}

// Join implements engine.GroupStore.
func (s Groups) Join(ctx context.Context, q row.Querier, j row.GroupJoin, now time.Time) (joined row.GroupJoined, err error) {
	if joined.Group, joined.Start, err = s.add(ctx, q, j, now); err != nil {
		return joined, err
	}
	if _, err := q.ExecContext(ctx, s.SQL(sqlDropSilent), joined.Group, pgsql.Stamp(now)); err != nil {
		return joined, err
	}
	j.Member.Group = joined.Group
	joined.Membership, err = s.Renew(ctx, q, j.Member, j.Expires, now)
	return joined, err
}

const (
	sqlLockGroup = `SELECT honker.group_lock($1)`

	sqlDropGroupClaims = `DELETE FROM honker.delivery WHERE group_id = $1 AND "offset" = ANY (ARRAY(
  SELECT d."offset" FROM honker.delivery d WHERE d.group_id = $1 ORDER BY d.group_id, d."offset" LIMIT $2))`
)

// sqlDropGroup deletes the group before its members, in a statement of its own. It waits for renewals, so the next
// statement sees their members.
var sqlDropGroup = []string{
	`DELETE FROM honker.grp WHERE id = $1`,
	`DELETE FROM honker.member WHERE group_id = $1`,
	`DELETE FROM honker.grp_turn WHERE group_id = $1`,
}

// Drop implements engine.GroupStore.
func (s Groups) Drop(ctx context.Context, q row.Querier, id int64, limit int) (int, error) {
	if _, err := q.ExecContext(ctx, s.SQL(sqlLockGroup), id); err != nil {
		return 0, err
	}
	for _, statement := range sqlDropGroup {
		if _, err := q.ExecContext(ctx, s.SQL(statement), id); err != nil {
			return 0, err
		}
	}
	return pgsql.Affected(ctx, q, s.SQL(sqlDropGroupClaims), id, limit)
}
