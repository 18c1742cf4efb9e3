package groups

import (
	"context"
	"database/sql"
	"time"

	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/internal/row"
)

const (
	// The lock of the group's row keeps Drop from missing the member. Another instance's row is replaced only after
	// it has expired.
	sqlTouchMember = `INSERT INTO honker.member AS m (group_id, name, instance, joined_at, expires_at)
SELECT g.id, $2, $3, $4, $5 FROM (SELECT id FROM honker.grp WHERE id = $1 FOR KEY SHARE) g
ON CONFLICT (group_id, name) DO UPDATE SET expires_at = excluded.expires_at, instance = excluded.instance,
  joined_at = CASE WHEN m.instance = excluded.instance THEN m.joined_at ELSE excluded.joined_at END
WHERE m.instance = excluded.instance OR m.expires_at < $4`

	sqlGetMember = `SELECT instance, expires_at FROM honker.member WHERE group_id = $1 AND name = $2`

	sqlDropSilent = `DELETE FROM honker.member WHERE group_id = $1 AND expires_at < $2`

	sqlDropMember = `DELETE FROM honker.member WHERE group_id = $1 AND name = $2 AND instance = $3`
)

// Renew implements engine.GroupStore.
func (s Groups) Renew(ctx context.Context, q row.Querier, m row.Member, expires, now time.Time) (out row.Membership, err error) {
	n, err := pgsql.Affected(ctx, q, s.SQL(sqlTouchMember), m.Group, m.Name, m.Instance, pgsql.Stamp(now), pgsql.StampUp(expires))
	if out.Kept = n > 0; err != nil || out.Kept {
		return out, err
	}
	// No row has changed because the name is taken or the group is gone.
	if _, err := s.byID(ctx, q, m.Group); err != nil {
		return out, err
	}
	var ends sql.NullTime
	_, err = pgsql.One(ctx, q, s.SQL(sqlGetMember), []any{m.Group, m.Name}, &out.Holder, &ends)
	out.Expires = pgsql.Instant(ends)
	return out, err
}

// sqlReturnAll passes over no lease. All events get the same token, so that they keep their order.
const sqlReturnAll = `UPDATE honker.delivery SET state = 1, token = (SELECT nextval('honker.grp_token')), deadline = $3, attempts = attempts - 1
WHERE group_id = $1 AND state = 0 AND holder = $2 AND deadline >= $3`

// Leave implements engine.GroupStore.
func (s Groups) Leave(ctx context.Context, q row.Querier, m row.Member, now time.Time) error {
	if _, err := q.ExecContext(ctx, s.SQL(sqlDropMember), m.Group, m.Name, m.Instance); err != nil {
		return err
	}
	_, err := q.ExecContext(ctx, s.SQL(sqlReturnAll), pgsql.Replan, m.Group, m.Instance, pgsql.Stamp(now))
	return err
}

// sqlMemberStates reads the leased events once for all members.
const sqlMemberStates = `SELECT m.name, m.instance, m.joined_at, m.expires_at, m.expires_at < $2, coalesce(h.n, 0), h.first
FROM honker.member m LEFT JOIN (
  SELECT d.holder, count(*) AS n, min(d.deadline) AS first FROM honker.delivery d
  WHERE d.group_id = $1 AND d.state = 0 AND d.deadline >= $2 GROUP BY d.holder) h ON h.holder = m.instance
WHERE m.group_id = $1 ORDER BY m.name LIMIT $3`

// memberStates returns up to limit of a group's members by name, including expired members. A negative limit means no
// limit.
func (s Groups) memberStates(ctx context.Context, q row.Querier, group int64, limit int, now time.Time) (all []row.MemberState, err error) {
	most := sql.NullInt64{Int64: int64(limit), Valid: limit >= 0}
	err = pgsql.Each(ctx, q, s.SQL(sqlMemberStates), func(r *sql.Rows) error {
		var m row.MemberState
		var joined, expires, first sql.NullTime
		err := r.Scan(&m.Name, &m.Instance, &joined, &expires, &m.Expired, &m.Leased, &first)
		m.JoinedAt, m.Expires, m.FirstEnd = pgsql.Instant(joined), pgsql.Instant(expires), pgsql.Instant(first)
		all = append(all, m)
		return err
	}, group, pgsql.Stamp(now), most)
	return all, err
}
