package ops

import (
	"context"
	"database/sql"
	"time"

	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/internal/row"
)

// Audits contains the statements for the table audit.
type Audits struct{ pgsql.Schema }

// auditRows is the number of entries that are kept.
const auditRows = 10000

const (
	sqlAddAudit = `WITH old AS (DELETE FROM honker.audit WHERE id <= (SELECT max(id) FROM honker.audit) + 1 - $7)
INSERT INTO honker.audit (at, who, remote, verb, filter, n) VALUES ($1, $2, $3, $4, $5, $6) RETURNING id`

	sqlGrowAudit = `UPDATE honker.audit SET n = n + $2 WHERE id = $1`

	sqlAudit = `SELECT id, at, coalesce(who, ''), coalesce(remote, ''), verb, coalesce(filter, ''), n
FROM honker.audit WHERE id < $1 ORDER BY id DESC LIMIT $2`
)

// Note implements engine.AuditStore.
func (s Audits) Note(ctx context.Context, q row.Querier, r row.AuditRow) (id int64, err error) {
	if r.ID != 0 {
		_, err := q.ExecContext(ctx, s.SQL(sqlGrowAudit), r.ID, r.N)
		return r.ID, err
	}
	args := []any{pgsql.Stamp(r.At.Truncate(time.Millisecond)), text(r.Who), text(r.Remote), r.Verb, text(r.Filter), r.N, auditRows}
	_, err = pgsql.One(ctx, q, s.SQL(sqlAddAudit), args, &id)
	return id, err
}

// text returns NULL for "".
func text(s string) sql.NullString { return sql.NullString{String: s, Valid: s != ""} }

// List implements engine.AuditStore.
func (s Audits) List(ctx context.Context, q row.Querier, before int64, limit int) (all []row.AuditRow, err error) {
	err = pgsql.Each(ctx, q, s.SQL(sqlAudit), func(rs *sql.Rows) error {
		var r row.AuditRow
		var at sql.NullTime
		err := rs.Scan(&r.ID, &at, &r.Who, &r.Remote, &r.Verb, &r.Filter, &r.N)
		r.At = pgsql.Instant(at)
		all = append(all, r)
		return err
	}, before, limit)
	return all, err
}
