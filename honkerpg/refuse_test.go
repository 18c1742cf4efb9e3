//go:build unix

package honkerpg_test

import (
	"context"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkerpg"
	"github.com/honker-go/honker/honkerpg/internal/pgtest"
)

// refused fails unless Open returns the error want, with a sentence that contains advice, and leaves schema as it was.
func refused(t *testing.T, dsn string, o honkerpg.Options, want error, advice string) {
	t.Helper()
	before := contents(t, o.Schema)
	db, err := honkerpg.Open(t.Context(), dsn, &o)
	require.ErrorIs(t, err, want)
	require.ErrorContains(t, err, advice)
	require.Nil(t, db)
	require.Equal(t, before, contents(t, o.Schema))
}

// contents returns the names in a schema of the server, or "none" if there is no such schema.
func contents(t *testing.T, schema string) (names string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), pgtest.DSN(t))
	require.NoError(t, err)
	defer conn.Close(context.Background())
	require.NoError(t, conn.QueryRow(t.Context(), `SELECT coalesce((SELECT nspname || ' ' ||
  (SELECT coalesce(string_agg(relname, ' ' ORDER BY relname), '') FROM pg_class WHERE relnamespace = n.oid)
FROM pg_namespace n WHERE nspname = $1), 'none')`, schema).Scan(&names))
	return names
}

// newRole returns a role without any rights, and its connection string.
func newRole(t *testing.T) (role, dsn string) {
	t.Helper()
	role = strings.ToLower(pgtest.Schema(t)[:30])
	admin(t, `CREATE ROLE `+role+` LOGIN`)
	t.Cleanup(func() {
		conn, err := pgx.Connect(context.Background(), pgtest.DSN(t))
		require.NoError(t, err)
		defer conn.Close(context.Background())
		_, err = conn.Exec(context.Background(), `DROP OWNED BY `+role+`; DROP ROLE `+role)
		require.NoError(t, err)
	})
	return role, strings.Replace(pgtest.DSN(t), "user=honker", "user="+role, 1)
}

// A connection string that the server refuses is invalid.
func TestOpen_WrongDSN(t *testing.T) {
	for _, wrong := range []string{" dbname=nowhere", " user=nobody_there"} {
		refused(t, pgtest.DSN(t)+wrong, honkerpg.Options{Schema: pgtest.Schema(t)}, honker.ErrInvalid, "connection string")
	}
}

// A schema in which another program has tables or functions of honker's names is left alone.
func TestOpen_SchemaOfAnother(t *testing.T) {
	for _, theirs := range []string{
		`CREATE TABLE schema.meta (key text, value text)`,
		`CREATE TABLE schema.meta (id int)`,
		`CREATE TABLE schema.meta (key text, value text); INSERT INTO schema.meta VALUES ('schema_version', 'two')`,
		`CREATE TABLE schema.job (id int)`,
		`CREATE VIEW schema.job AS SELECT 1`,
		`CREATE FUNCTION schema.ack_(w text, at timestamptz, ids bigint[], nth bigint, q text) RETURNS int LANGUAGE sql AS 'SELECT 1'`,
	} {
		schema := pgtest.Schema(t)
		quoted := pgx.Identifier{schema}.Sanitize()
		admin(t, strings.ReplaceAll(`CREATE SCHEMA `+quoted+`; `+theirs, "schema.", quoted+"."))
		refused(t, pgtest.DSN(t), honkerpg.Options{Schema: schema}, honker.ErrInvalid, "choose another schema")
	}
}

// A role that may not create the schema or its tables is told to get the right, or to use NoMigrate.
func TestOpen_RoleMayNotCreate(t *testing.T) {
	role, dsn := newRole(t)
	schema := pgtest.Schema(t)
	refused(t, dsn, honkerpg.Options{Schema: schema}, fs.ErrPermission, "GRANT CREATE ON DATABASE")
	admin(t, fmt.Sprintf(`CREATE SCHEMA %s; GRANT USAGE ON SCHEMA %[1]s TO %s`, pgx.Identifier{schema}.Sanitize(), role))
	refused(t, dsn, honkerpg.Options{Schema: schema}, fs.ErrPermission, "GRANT CREATE ON SCHEMA")
}

// A role needs the rights to use the schema and all of its tables, and no right to create anything. The error names the
// tables that it may not use.
func TestOpen_RoleMayNotUse(t *testing.T) {
	role, dsn := newRole(t)
	schema := pgtest.Schema(t)
	o := honkerpg.Options{Schema: schema, NoMigrate: true}
	open(t, honkerpg.Options{Schema: schema})
	change := func(statement string) { admin(t, fmt.Sprintf(statement, pgx.Identifier{schema}.Sanitize(), role)) }
	refused(t, dsn, o, fs.ErrPermission, "GRANT USAGE ON SCHEMA")
	change(`GRANT USAGE ON SCHEMA %s TO %s`)
	refused(t, dsn, o, fs.ErrPermission, "meta in the schema")
	change(`GRANT SELECT ON ALL TABLES IN SCHEMA %s TO %s`)
	refused(t, dsn, o, fs.ErrPermission, "job")
	reader := o
	reader.ReadOnly = true
	db, err := honkerpg.Open(t.Context(), dsn, &reader)
	require.NoError(t, err)
	require.Empty(t, events(t, honker.NewStream[int](db, "orders", nil)))
	require.NoError(t, db.Close())
	change(`GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA %s TO %s`)
	refused(t, dsn, o, fs.ErrPermission, "_seq")
	change(`GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA %s TO %s`)
	change(`REVOKE DELETE ON %s.side FROM %s`)
	refused(t, dsn, o, fs.ErrPermission, "side in the schema")
	change(`GRANT DELETE ON %s.side TO %s`)
	for _, noMigrate := range []bool{true, false} { // there is nothing to migrate
		o.NoMigrate = noMigrate
		db, err = honkerpg.Open(t.Context(), dsn, &o)
		require.NoError(t, err)
		_, err = honker.NewStream[int](db, "orders", nil).Publish(t.Context(), 1)
		require.NoError(t, err)
		defer db.Close()
	}
	change(`REVOKE INSERT ON %s.event FROM %s`)
	_, err = honker.NewStream[int](db, "orders", nil).Publish(t.Context(), 2)
	require.ErrorIs(t, err, fs.ErrPermission)
}

// A standby, and a role whose transactions are read-only, can be opened for reading only. A standby that was promoted
// can be opened for writing.
func TestOpen_ServerIsReadOnly(t *testing.T) {
	role, dsn := newRole(t)
	schema := pgtest.Schema(t)
	admin(t, `ALTER ROLE `+role+` SET default_transaction_read_only = on`)
	refused(t, dsn, honkerpg.Options{Schema: schema}, honker.ErrReadOnly, "default_transaction_read_only")

	if testing.Short() {
		t.Skip("starts a server")
	}
	server := pgtest.Cluster(t)
	db, err := honkerpg.Open(t.Context(), server.DSN(), nil)
	require.NoError(t, err)
	defer db.Close()
	s := honker.NewStream[int](db, "orders", nil)
	_, err = s.Publish(t.Context(), 1)
	require.NoError(t, err)
	require.NoError(t, server.Standby())
	_, err = s.Publish(t.Context(), 2)
	require.ErrorIs(t, err, honker.ErrReadOnly)
	for _, o := range []honkerpg.Options{{}, {NoMigrate: true}, {Schema: "new"}} {
		_, err = honkerpg.Open(t.Context(), server.DSN(), &o)
		require.ErrorIs(t, err, honker.ErrReadOnly)
		require.ErrorContains(t, err, "primary")
	}
	reader, err := honkerpg.Open(t.Context(), server.DSN(), &honkerpg.Options{Options: honker.Options{ReadOnly: true}})
	require.NoError(t, err)
	defer reader.Close()
	require.Equal(t, []int{1}, events(t, honker.NewStream[int](reader, "orders", nil)))
	_, err = reader.SQL().ExecContext(t.Context(), `SELECT pg_promote()`)
	require.NoError(t, err)
	_, err = s.Publish(t.Context(), 2)
	require.NoError(t, err)
}

// A pooler that loses prepared statements is refused unless Pooler is set, whichever server connections it gives. Nothing
// was created. A pooler that keeps sessions is accepted.
func TestOpen_Pooler(t *testing.T) {
	for name, settings := range map[string]string{"round robin": pgtest.RoundRobin, "last used": pgtest.LastUsed} {
		t.Run(name, func(t *testing.T) {
			dsn := pgtest.BouncerWith(t, settings)
			o := honkerpg.Options{Schema: pgtest.Schema(t)}
			for range 3 {
				refused(t, dsn, o, honker.ErrUnsupported, "set Options.Pooler")
			}
			refused(t, dsn+" pool_max_conns=1", o, honker.ErrUnsupported, "set Options.Pooler")
			pool, err := pgxpool.New(t.Context(), dsn)
			require.NoError(t, err)
			defer pool.Close()
			_, err = honkerpg.Attach(t.Context(), pool, &o)
			require.ErrorIs(t, err, honker.ErrUnsupported)
			o.Pooler = true
			_, err = honkerpg.Attach(t.Context(), pool, &o)
			require.ErrorIs(t, err, honker.ErrInvalid)
			require.ErrorContains(t, err, "QueryExecModeExec")
			require.Equal(t, "none", contents(t, o.Schema))
		})
	}
	t.Run("sessions", func(t *testing.T) {
		o := honkerpg.Options{Schema: pgtest.Schema(t)}
		for range 2 { // the first leaves nothing behind
			db, err := honkerpg.Open(t.Context(), pgtest.BouncerWith(t, pgtest.Sessions), &o)
			require.NoError(t, err)
			_, err = honker.NewStream[int](db, "orders", nil).Publish(t.Context(), 1)
			require.NoError(t, err)
			require.NoError(t, db.Close())
		}
	})
}
