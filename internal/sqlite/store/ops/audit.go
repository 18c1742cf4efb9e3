package ops

import (
	"context"
	"database/sql"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/rows"
)

// Audits contains the statements for _honkerx_audit.
type Audits struct{}

// auditRows is the number of rows kept.
const auditRows = 10000

// Both statements use the primary key. Each insert deletes the row that exceeds auditRows, so the table stays small
// without a sweep.
const (
	sqlAddAudit = `INSERT INTO _honkerx_audit (at_ms, who, remote, verb, filter, n) VALUES (?1, ?2, ?3, ?4, ?5, ?6) RETURNING id`

	sqlTrimAudit = `DELETE FROM _honkerx_audit WHERE id <= ?1`
	sqlGrowAudit = `UPDATE _honkerx_audit SET n = n + ?2 WHERE id = ?1`

	sqlAudit = `SELECT id, at_ms, who, remote, verb, filter, n FROM _honkerx_audit WHERE id < ?1 ORDER BY id DESC LIMIT ?2 + 0`
)

// Note inserts r and returns its ID. If r.ID is set, an earlier transaction of the same operation has already
// inserted the row, and Note only adds r.N to it.
func (Audits) Note(ctx context.Context, q row.Querier, r row.AuditRow) (id int64, err error) {
	if r.ID != 0 {
		_, err := q.ExecContext(ctx, sqlGrowAudit, r.ID, r.N)
		return r.ID, err
	}
	_, err = rows.One(ctx, q, sqlAddAudit, []any{rows.MilliOf(r.At), rows.NullText(r.Who), rows.NullText(r.Remote), r.Verb, rows.NullText(r.Filter), r.N}, &id)
	if err == nil {
		_, err = q.ExecContext(ctx, sqlTrimAudit, id-auditRows)
	}
	return id, err
}

// List returns up to limit rows with IDs below before, newest first.
func (Audits) List(ctx context.Context, q row.Querier, before int64, limit int) (all []row.AuditRow, err error) {
	err = rows.Each(ctx, q, sqlAudit, func(rs *sql.Rows) error {
		var r row.AuditRow
		err := rs.Scan(&r.ID, (*rows.Milli)(&r.At), (*rows.Text)(&r.Who), (*rows.Text)(&r.Remote), &r.Verb, (*rows.Text)(&r.Filter), (*rows.Number)(&r.N))
		all = append(all, r)
		return err
	}, before, limit)
	return all, err
}
