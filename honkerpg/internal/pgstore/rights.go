package pgstore

import (
	"context"
	"database/sql"
	"fmt"
	"io/fs"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

const (
	// The tables, sequences and functions of a schema that the role may not use. Reading is enough unless $2 is set.
	// has_table_privilege is true if any of several privileges is there.
	sqlLacking = `SELECT c.relname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = $1 AND c.relkind = 'r' AND NOT (has_table_privilege(c.oid, 'SELECT')
  AND (NOT $2 OR has_table_privilege(c.oid, 'INSERT') AND has_table_privilege(c.oid, 'UPDATE') AND has_table_privilege(c.oid, 'DELETE')))
UNION ALL SELECT c.relname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE $2 AND n.nspname = $1 AND c.relkind = 'S' AND NOT (has_sequence_privilege(c.oid, 'USAGE') AND has_sequence_privilege(c.oid, 'SELECT'))
UNION ALL SELECT p.proname FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
WHERE n.nspname = $1 AND NOT has_function_privilege(p.oid, 'EXECUTE')
ORDER BY 1`

	sqlMayUse    = `SELECT has_schema_privilege($1, 'USAGE')`
	sqlMayCreate = `SELECT CASE WHEN $2 THEN has_schema_privilege($1, 'CREATE') ELSE has_database_privilege(current_database(), 'CREATE') END,
  current_database()`
	sqlAccepts = `SELECT pg_is_in_recovery(), current_setting('transaction_read_only') = 'on'`
)

// CheckRights returns fs.ErrPermission if the role may not use the schema s, which must exist. If reading is set, the
// role only needs to read.
func CheckRights(ctx context.Context, q row.Querier, s pgsql.Schema, reading bool) error {
	lacks := []string{}
	err := pgsql.Each(ctx, q, sqlLacking, func(r *sql.Rows) error {
		var name string
		err := r.Scan(&name)
		lacks = append(lacks, name)
		return err
	}, string(s), !reading)
	if err != nil || len(lacks) == 0 {
		return err
	}
	return lacking(s, lacks)
}

// mayUse returns fs.ErrPermission if the role may not see the tables of s, which must exist.
func mayUse(ctx context.Context, q row.Querier, s pgsql.Schema) error {
	may := false
	if _, err := pgsql.One(ctx, q, sqlMayUse, []any{string(s)}, &may); err != nil || may {
		return err
	}
	return lacking(s, nil)
}

// mayMake returns fs.ErrPermission if the role may not create tables in s, or s itself unless it is there.
func mayMake(ctx context.Context, q row.Querier, s pgsql.Schema, there bool) error {
	may, database := false, ""
	if _, err := pgsql.One(ctx, q, sqlMayCreate, []any{string(s), there}, &may, &database); err != nil || may {
		return err
	}
	on := "DATABASE " + pgx.Identifier{database}.Sanitize()
	if there {
		on = "SCHEMA " + quoted(s)
	}
	return fmt.Errorf("%w: the role may not create honker's tables; run GRANT CREATE ON %s, or let an administrator run the statements "+
		"that honkerpg.Schema returns and set Options.NoMigrate", fs.ErrPermission, on)
}

// lacking returns fs.ErrPermission with the statements that give a role its rights.
func lacking(s pgsql.Schema, names []string) error {
	what := "the schema " + string(s)
	if len(names) > 0 {
		what = strings.Join(names, ", ") + " in " + what
	}
	return fmt.Errorf("%w: the role may not use %s; run GRANT USAGE ON SCHEMA %[3]s, GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN "+
		"SCHEMA %[3]s and GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA %[3]s", fs.ErrPermission, what, quoted(s))
}

// quoted returns the name of s for a statement.
func quoted(s pgsql.Schema) string { return pgx.Identifier{string(s)}.Sanitize() }

// CheckAccepts returns ErrReadOnly if the server accepts no writes.
func CheckAccepts(ctx context.Context, q row.Querier) error {
	var recovers, reads bool
	_, err := pgsql.One(ctx, q, sqlAccepts, nil, &recovers, &reads)
	switch {
	case err != nil:
		return err
	case recovers:
		return fmt.Errorf("%w: the server is a standby; connect to the primary, for example with target_session_attrs=read-write, "+
			"or set Options.ReadOnly", engine.ErrReadOnly)
	case reads:
		return fmt.Errorf("%w: default_transaction_read_only is on for the role, the database or the server; turn it off, "+
			"or set Options.ReadOnly", engine.ErrReadOnly)
	}
	return nil
}
