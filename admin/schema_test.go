package admin_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/admin"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
)

// Schema lists honker's tables with their indexes and triggers, including the application's triggers. It
// lists no other tables.
func TestSchema_Tables(t *testing.T) {
	testkit.FileOnly(t)
	db := honkertest.Open(t, nil)
	for _, statement := range []string{
		`CREATE TABLE customers (id INTEGER PRIMARY KEY)`,
		`CREATE TRIGGER of_ours AFTER DELETE ON _honker_live BEGIN SELECT 1; END`,
	} {
		_, err := db.SQL().ExecContext(t.Context(), statement)
		require.NoError(t, err)
	}
	tables, err := admin.Schema(t.Context(), db)
	require.NoError(t, err)
	info, err := admin.File(t.Context(), db)
	require.NoError(t, err)
	var names, listed []string
	for _, table := range tables {
		names = append(names, table.Name)
		require.Contains(t, table.SQL, "CREATE TABLE")
	}
	for _, table := range info.Tables {
		listed = append(listed, table.Name)
	}
	require.Equal(t, listed, names)
	live := tables[slices.Index(names, "_honker_live")]
	require.Contains(t, live.SQL, "claim_expires_at INTEGER")
	kinds := map[string]string{}
	for _, part := range live.Parts {
		kinds[part.Name] = part.Kind
		require.NotEmpty(t, part.SQL)
	}
	require.Equal(t, "index", kinds["_honkerx_live_pending"])
	require.Equal(t, "trigger", kinds["_honkerx_job_gone"])
	require.Equal(t, "trigger", kinds["of_ours"])
	_, err = admin.Schema(t.Context(), nil)
	require.Error(t, err)
}
