package pgstore

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// Migrations, oldest first. A released migration must not change. Until the first release, version 1 may.
var (
	//go:embed migrations
	files      embed.FS
	migrations = []string{migration("0001")}
)

// migration returns the text of a migration, whose files are read in the order of their names.
func migration(version string) string {
	var text strings.Builder
	paths, err := fs.Glob(files, "migrations/"+version+"/*.sql")
	for _, path := range paths {
		part, failed := files.ReadFile(path)
		err = errors.Join(err, failed)
		text.Write(part)
	}
	if err != nil || len(paths) == 0 {
		panic("migration " + version + " is not in the program: " + fmt.Sprint(err))
	}
	return text.String()
}

// Version is the version of the schema that this package creates.
var Version = len(migrations)

// Keys of the table meta.
const (
	keyVersion    = "schema_version"
	keyCompatible = "compatible_from" // oldest version whose programs may use this schema
)

// compatibleFrom is the oldest version whose programs may use a schema of this version.
const compatibleFrom = 1

const (
	sqlServer = `SELECT version(), current_setting('server_version_num')::int, current_setting('server_encoding'),
  current_setting('default_transaction_isolation')`

	// CREATE SCHEMA IF NOT EXISTS needs a permission even if the schema exists.
	// These read the catalog instead of calling to_regclass, which may answer from a cache that is older than the
	// statement's snapshot: a process that has waited for another migration would not see its tables.
	sqlHasSchema = `SELECT true FROM pg_catalog.pg_namespace WHERE nspname = $1`
	sqlHasMeta   = `SELECT true FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = $1 AND c.relname = 'meta'`
	sqlCreateSchema = `CREATE SCHEMA `
	sqlMeta         = `SELECT key, value FROM honker.meta`
	sqlSetMeta      = `INSERT INTO honker.meta (key, value) VALUES ($1, $2) ON CONFLICT (key) DO UPDATE SET value = excluded.value`

	// A migration waits for another process's as long as that takes.
	sqlWaitForMigrations = `SET LOCAL lock_timeout = 0`

	// The lock lasts until the end of the transaction. The first number is the class of honker's locks for migrations.
	sqlLockMigrations = `SELECT pg_advisory_xact_lock(1751085680, hashtext($1))`
)

// oldestServer is the oldest server version that the statements run on, as server_version_num.
const oldestServer = 140000

// CheckServer returns ErrUnsupported if honker cannot run on the server.
func CheckServer(ctx context.Context, q row.Querier) error {
	var version, encoding, isolation string
	var number int
	if _, err := pgsql.One(ctx, q, sqlServer, nil, &version, &number, &encoding, &isolation); err != nil {
		return err
	}
	return refuse(version, number, encoding, isolation)
}

// refuse returns ErrUnsupported for a server with these settings that honker cannot run on.
func refuse(version string, number int, encoding, isolation string) error {
	why := ""
	switch {
	case strings.Contains(version, "CockroachDB"):
		why = "CockroachDB has no LISTEN and no advisory locks; use PostgreSQL 14 or newer"
	case strings.Contains(version, "-YB-") || strings.Contains(version, "Yugabyte"):
		why = "YugabyteDB has different transaction snapshots; use PostgreSQL 14 or newer"
	case number < oldestServer:
		why = "the server is " + version + "; use PostgreSQL 14 or newer"
	case encoding != "UTF8":
		why = "the database has the encoding " + encoding + "; create it with ENCODING 'UTF8'"
	case isolation != "read committed":
		why = "default_transaction_isolation is " + isolation + "; run ALTER ROLE … SET default_transaction_isolation = 'read committed'"
	default:
		return nil
	}
	return fmt.Errorf("%w: %s", engine.ErrUnsupported, why)
}

// Bootstrap creates the schema or brings it up to date. It writes nothing if the schema is current. Processes that
// call it at the same time wait for each other.
func Bootstrap(ctx context.Context, pool *sql.DB, s pgsql.Schema) error {
	if err := s.Check(); err != nil {
		return err
	}
	if err := CheckServer(ctx, pool); err != nil {
		return err
	}
	if err := CheckAccepts(ctx, pool); err != nil {
		return err
	}
	version, err := made(ctx, pool, s)
	if err != nil || version >= Version {
		return err
	}
	tx, err := pool.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(ctx, sqlWaitForMigrations); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, sqlLockMigrations, string(s)); err != nil {
		return err
	}
	if err := migrate(ctx, tx, s); err != nil {
		return err
	}
	return tx.Commit()
}

// Current returns an error unless the schema exists and is up to date: that of old if it is too old or missing, whose version is
// 0. It writes nothing.
func Current(ctx context.Context, pool *sql.DB, s pgsql.Schema, old func(version, current int) error) error {
	if err := s.Check(); err != nil {
		return err
	}
	if err := CheckServer(ctx, pool); err != nil {
		return err
	}
	version, err := made(ctx, pool, s)
	switch {
	case err != nil:
		return err
	case version == 0:
		return fmt.Errorf("%w: schema %s: %w, or run the statements that honkerpg.Schema returns", engine.ErrUnsupported, string(s), old(0, Version))
	case version < Version:
		return fmt.Errorf("%w: schema %s: %w, as a role that may create tables", engine.ErrUnsupported, string(s), old(version, Version))
	}
	return nil
}

// Text returns the statements that create a schema in psql. They change nothing and fail if it has honker's tables.
func Text(s pgsql.Schema) (string, error) {
	if err := s.Check(); err != nil {
		return "", err
	}
	var text strings.Builder
	fmt.Fprintf(&text, "-- honker's schema, version %d.\nBEGIN;\nCREATE SCHEMA IF NOT EXISTS %s;\n",
		Version, quoted(s))
	for _, m := range migrations {
		text.WriteString(s.SQL(m))
	}
	for _, m := range [][2]string{{keyVersion, strconv.Itoa(Version)}, {keyCompatible, strconv.Itoa(compatibleFrom)}} {
		fmt.Fprintf(&text, "INSERT INTO %s (key, value) VALUES ('%s', '%s');\n", pgx.Identifier{string(s), "meta"}.Sanitize(), m[0], m[1])
	}
	text.WriteString("COMMIT;\n")
	return text.String(), nil
}

// migrate runs the missing migrations. The caller holds the lock of migrations.
func migrate(ctx context.Context, tx *sql.Tx, s pgsql.Schema) error {
	version, err := made(ctx, tx, s) // again: another process may have migrated
	if err != nil || version >= Version {
		return err
	}
	there := false
	if _, err := pgsql.One(ctx, tx, sqlHasSchema, []any{string(s)}, &there); err != nil {
		return err
	}
	if err := mayMake(ctx, tx, s, there); err != nil {
		return err
	}
	if !there {
		if _, err := tx.ExecContext(ctx, sqlCreateSchema+quoted(s)); err != nil {
			return err
		}
	}
	for i, text := range migrations[version:] {
		if _, err := tx.ExecContext(ctx, s.SQL(text)); err != nil {
			if name, ok := pgsql.Exists(err); ok {
				return taken(s, name, err)
			}
			return fmt.Errorf("migration to version %d of the schema: %w", version+i+1, err)
		}
	}
	for key, value := range map[string]int{keyVersion: Version, keyCompatible: compatibleFrom} {
		if _, err := tx.ExecContext(ctx, s.SQL(sqlSetMeta), key, strconv.Itoa(value)); err != nil {
			return err
		}
	}
	return nil
}

// taken returns ErrInvalid for a schema in which name belongs to another program. The cause may be nil.
func taken(s pgsql.Schema, name string, cause error) error {
	err := fmt.Errorf("%w: %s.%s does not belong to honker; choose another schema", engine.ErrInvalid, string(s), name)
	if cause != nil {
		err = fmt.Errorf("%w: %w", err, cause)
	}
	return err
}

// made returns the version of the schema, or 0 if it has not been created. It returns ErrSchemaTooNew if programs
// of this version cannot use it.
func made(ctx context.Context, q row.Querier, s pgsql.Schema) (version int, err error) {
	there := false
	if _, err := pgsql.One(ctx, q, sqlHasMeta, []any{string(s)}, &there); err != nil || !there {
		return 0, err
	}
	if err := mayUse(ctx, q, s); err != nil {
		return 0, err
	}
	compatible := 0
	err = pgsql.Each(ctx, q, s.SQL(sqlMeta), func(r *sql.Rows) error {
		var key, value string
		err := r.Scan(&key, &value)
		switch key {
		case keyVersion:
			version, err = strconv.Atoi(value)
		case keyCompatible:
			compatible, err = strconv.Atoi(value)
		}
		return err
	})
	switch {
	case pgsql.Denied(err):
		return 0, lacking(s, []string{"meta"})
	case pgsql.Foreign(err) || errors.Is(err, strconv.ErrSyntax) || err == nil && version == 0:
		return 0, taken(s, "meta", err)
	case err != nil:
		return 0, err
	case compatible > Version:
		return 0, fmt.Errorf("%w: the schema %s has version %d, and this program needs a version up to %d; update the program",
			engine.ErrSchemaTooNew, string(s), version, Version)
	}
	return version, nil
}
