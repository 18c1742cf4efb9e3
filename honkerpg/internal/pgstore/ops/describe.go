package ops

import (
	"context"
	"database/sql"

	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/internal/row"
)

// Servers contains the statements that describe the database.
type Servers struct{ pgsql.Schema }

const (
	sqlServer = `SELECT version, started, database, role, coalesce(schema_version, 0), size, connections, most, standby, sees_all FROM honker.server_state()`
	sqlTables = `SELECT name, n, dead, bytes, vacuumed FROM honker.table_sizes()`
)

// DescribeServer implements engine.ServerStore.
func (s Servers) DescribeServer(ctx context.Context, q row.Querier) (row.ServerState, error) {
	x := row.ServerState{Schema: string(s.Schema)}
	var started sql.NullTime
	_, err := pgsql.One(ctx, q, s.SQL(sqlServer), nil, &x.Version, &started, &x.Database, &x.Role, &x.SchemaVersion, &x.Size,
		&x.Connections.Used, &x.Connections.Most, &x.Standby, &x.SeesSessions)
	if err != nil {
		return row.ServerState{}, err
	}
	x.Started = pgsql.Instant(started)
	err = pgsql.Each(ctx, q, s.SQL(sqlTables), func(r *sql.Rows) error {
		var t row.ServerTable
		var vacuumed sql.NullTime
		err := r.Scan(&t.Name, &t.Rows, &t.Dead, &t.Bytes, &vacuumed)
		t.Vacuumed = pgsql.Instant(vacuumed)
		x.Tables = append(x.Tables, t)
		return err
	})
	return x, err
}
