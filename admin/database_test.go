package admin_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
	"github.com/honker-go/honker/internal/testkit"
)

// A function that the database does not have names a substitute.
func TestDatabase_Unsupported(t *testing.T) {
	ctx, db, _, _ := open(t)
	if admin.IsFile(db) {
		_, err := admin.Database(ctx, db)
		require.ErrorIs(t, err, honker.ErrUnsupported)
		require.ErrorContains(t, err, "admin.File")
		return
	}
	for instead, call := range map[string]func() error{
		"pg_dump":        func() error { return admin.Backup(ctx, db, filepath.Join(t.TempDir(), "copy")) },
		"VACUUM":         func() error { return admin.Vacuum(ctx, db) },
		"admin.Database": func() error { _, err := admin.File(ctx, db); return err },
		"psql":           func() error { _, err := admin.Schema(ctx, db); return err },
	} {
		err := call()
		require.ErrorIs(t, err, honker.ErrUnsupported)
		require.ErrorContains(t, err, instead)
	}
}

// The description of a server's database has its versions, connections, and the sizes of honker's tables.
func TestDatabase_Server(t *testing.T) {
	ctx, db, q, _ := open(t)
	if admin.IsFile(db) {
		t.Skip("the database is a file")
	}
	testkit.Enqueue(t, q, 1)
	d, err := admin.Database(ctx, db)
	require.NoError(t, err)
	require.NotEmpty(t, d.Version)
	require.NotEmpty(t, d.Database)
	require.NotEmpty(t, d.Schema)
	require.NotEmpty(t, d.Role)
	require.Equal(t, 1, d.SchemaVersion)
	require.True(t, d.SeesSessions, "the role is a superuser")
	require.False(t, d.Standby)
	require.Positive(t, d.Connections)
	require.Greater(t, d.MaxConnections, d.Connections)
	require.WithinRange(t, d.Started, admin.Now(db).Add(-24*time.Hour), admin.Now(db))
	sizes := map[string]int64{}
	for _, table := range d.Tables {
		sizes[table.Name] = table.Bytes
	}
	require.Positive(t, sizes["job"])
	require.Greater(t, d.Size, sizes["job"])
	require.Contains(t, sizes, "dead")
}

// Now is the database's clock, by which jobs are dated.
func TestNow(t *testing.T) {
	_, db, q, _ := open(t)
	before := admin.Now(db).Truncate(time.Second)
	id := testkit.Enqueue(t, q, 1)
	job, err := q.Get(t.Context(), id)
	require.NoError(t, err)
	require.WithinRange(t, job.CreatedAt, before.Add(-time.Second), admin.Now(db).Add(time.Second))
	require.Zero(t, admin.Now(nil))
}
