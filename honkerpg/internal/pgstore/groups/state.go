package groups

import (
	"context"
	"database/sql"
	"time"

	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/honkerpg/internal/pgstore/streams"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

const sqlCounts = `SELECT
  (SELECT count(*) FROM honker.delivery d WHERE d.group_id = t.group_id AND d.state = 0 AND d.deadline >= $2),
  (SELECT count(*) FROM honker.delivery d WHERE d.group_id = t.group_id AND d.state = 0 AND d.deadline < $2)
    + (SELECT count(*) FROM honker.delivery d WHERE d.group_id = t.group_id AND d.state = 1),
  (SELECT count(*) FROM honker.delivery d WHERE d.group_id = t.group_id AND d.state = 2),
  t.cursor, least(t.cursor, (SELECT d."offset" - 1 FROM honker.delivery d WHERE d.group_id = t.group_id AND d.state < 2
    ORDER BY d.group_id, d."offset" LIMIT 1))
FROM (SELECT group_id, cursor FROM honker.grp_turn WHERE group_id = $1 ORDER BY group_id DESC, token DESC LIMIT 1) t`

// Progress implements engine.GroupStore.
func (s Groups) Progress(ctx context.Context, q row.Querier, group int64, members int, now time.Time) (p row.GroupProgress, err error) {
	_, err = pgsql.One(ctx, q, s.SQL(sqlCounts), []any{group, pgsql.Stamp(now)}, &p.Leased, &p.Back, &p.Dead, &p.Cursor, &p.LowWater)
	if err != nil {
		return p, err
	}
	p.Members, err = s.memberStates(ctx, q, group, members, now)
	return p, err
}

// sqlGroupStates makes two seeks for each group. A lease is valid until its deadline has passed.
const sqlGroupStates = `SELECT u.id, coalesce(l.deadline < $2, false) OR coalesce(w.deadline <= $2, false),
  least(l.deadline + interval '1 microsecond', w.deadline)
FROM unnest($1::bigint[]) WITH ORDINALITY u (id, n)
LEFT JOIN LATERAL (SELECT d.deadline FROM honker.delivery d WHERE d.group_id = u.id AND d.state = 0 ORDER BY d.deadline LIMIT 1) l ON true
LEFT JOIN LATERAL (SELECT d.deadline FROM honker.delivery d WHERE d.group_id = u.id AND d.state = 1 ORDER BY d.deadline LIMIT 1) w ON true
ORDER BY u.n`

// States returns for each group in ids whether a claim would find a returned event, and when a leased or returned event
// may become claimable. It ignores new events, because their topic already wakes the members.
func (s Groups) States(ctx context.Context, q row.Querier, ids []int64, now time.Time) (all []row.GroupState, err error) {
	err = pgsql.Each(ctx, q, s.SQL(sqlGroupStates), func(r *sql.Rows) error {
		var g row.GroupState
		var next sql.NullTime
		err := r.Scan(&g.ID, &g.Ready, &next)
		g.Next = pgsql.Instant(next)
		all = append(all, g)
		return err
	}, pgsql.Replan, pgsql.List(ids), pgsql.Stamp(now))
	return all, err
}

// Ready implements engine.GroupStore.
func (s Groups) Ready(ctx context.Context, q row.Querier, id int64, now time.Time) (row.GroupState, error) {
	group, err := s.byID(ctx, q, id)
	if err != nil {
		return row.GroupState{}, err
	}
	states, err := s.States(ctx, q, []int64{id}, now)
	if err != nil {
		return row.GroupState{}, err
	}
	head, err := s.head(ctx, q, group.Selection())
	states[0].Ready = states[0].Ready || head > group.Cursor
	return states[0], err
}

// head returns the highest offset that the cursor of a group can reach. The cursor of a pattern moves over the events of
// all topics, so for a pattern it is the last offset of all events.
func (s Groups) head(ctx context.Context, q row.Querier, sel row.Selection) (int64, error) {
	topic := row.Selection{Topic: sel.Topic}
	if sel.Pattern() {
		topic.Topic = "*"
	}
	return streams.Streams{Schema: s.Schema}.Last(ctx, q, topic)
}

// sqlClaimsLeft selects the dropped groups that still have claims. It takes a seek for each group.
const sqlClaimsLeft = `WITH RECURSIVE held(id) AS (
  SELECT (SELECT min(group_id) FROM honker.delivery)
  UNION ALL
  SELECT (SELECT min(d.group_id) FROM honker.delivery d WHERE d.group_id > h.id) FROM held h WHERE h.id IS NOT NULL
)
SELECT h.id FROM held h WHERE h.id IS NOT NULL AND NOT EXISTS (SELECT FROM honker.grp g WHERE g.id = h.id) LIMIT $1`

// Sweep returns the sweep of the claims of deleted groups. A process that dies between two calls to Drop leaves them.
func (s Groups) Sweep() engine.Sweep {
	return engine.Sweep{
		Find: func(ctx context.Context, q row.Querier, _ row.Part, _ time.Time, limit int) ([]int64, error) {
			return pgsql.IDs(ctx, q, s.SQL(sqlClaimsLeft), limit)
		},
		Take: func(ctx context.Context, q row.Querier, _ row.Part, groups []int64, _ time.Time, limit int) (row.Swept, error) {
			n := 0
			for _, group := range groups {
				dropped, err := pgsql.Affected(ctx, q, s.SQL(sqlDropGroupClaims), group, limit-n)
				if n += dropped; err != nil || n == limit {
					return row.Swept{N: n, More: true}, err
				}
			}
			return row.Swept{N: n}, nil
		},
	}
}
