package main

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// madeBy creates a file and runs statements that turn it into a file of another version.
func madeBy(t *testing.T, path string, statements ...string) {
	t.Helper()
	db := open(t, path)
	for _, s := range statements {
		_, err := db.SQL().ExecContext(t.Context(), s)
		require.NoError(t, err)
	}
	require.NoError(t, db.Close())
}

const (
	makeOlder = `UPDATE _honkerx_meta SET value = '5' WHERE key = 'schema_version'`
	makeNewer = `UPDATE _honkerx_meta SET value = '1000' WHERE key = 'schema_version'`
	makeOther = `DROP TABLE _honkerx_meta`
)

func TestGolden_Upgrade(t *testing.T) {
	inFile(t, func(t *testing.T, s *session) {
		madeBy(t, "older.db", makeOlder)
		madeBy(t, "newer.db", makeNewer)
		madeBy(t, "other.db", makeOther)
		s.do("status", "-f", "older.db")
		s.do("status", "-f", "other.db")
		s.do("enqueue", "emails", "1", "-f", "older.db")
		s.do("upgrade", "-f", "older.db", "--dry-run")
		s.do("upgrade", "-f", "older.db")
		s.atTerm, s.stdin = true, "n\n"
		s.do("upgrade", "-f", "older.db")
		s.stdin = "y\n"
		s.do("upgrade", "-f", "older.db")
		s.do("status", "-f", "older.db")
		s.do("upgrade", "-f", "older.db")
		s.do("upgrade", "-f", "older.db", "--dry-run", "-o", "json")
		s.do("upgrade", "-f", "other.db", "--dry-run")
		s.stdin = "y\n"
		s.do("upgrade", "-f", "other.db")
		s.do("check", "-f", "other.db")
		s.do("upgrade", "-f", "newer.db", "--yes")
		s.do("upgrade", "-f", "no.db", "--yes")
		s.do("migrate")
		s.matches("upgrade")
	})
}

// The only file in the directory is found, no matter which version created it. Rejected files are left unchanged.
func TestUpgrade_OnlyFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	madeBy(t, filepath.Join(dir, "app.db"), makeOlder)
	before := contents(t, dir)
	got := ran(t, dir, "status")
	require.Equal(t, codeRefused, got.code)
	require.Contains(t, got.err, "\ntry: honker upgrade\n")
	require.Equal(t, codeUsage, ran(t, dir, "upgrade").code, "there is no terminal to ask on")
	require.Equal(t, codeWouldChange, ran(t, dir, "upgrade", "--dry-run").code)
	require.Equal(t, before, contents(t, dir))
	require.Zero(t, ran(t, dir, "upgrade", "--yes").code)
	require.Zero(t, ran(t, dir, "status").code)
}
