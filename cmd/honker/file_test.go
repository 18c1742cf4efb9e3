package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
)

// Files that are not honker files of this version are rejected and left unchanged.
func TestFile_Refused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	exec := func(name string, statements ...string) {
		pool, err := sql.Open("sqlite", at(name))
		require.NoError(t, err)
		for _, s := range statements {
			_, err := pool.ExecContext(t.Context(), s)
			require.NoError(t, err)
		}
		require.NoError(t, pool.Close())
	}
	for _, name := range []string{"newer", "older"} {
		db, err := honker.Open(t.Context(), at(name), nil)
		require.NoError(t, err)
		require.NoError(t, db.Close())
	}
	exec("newer", `UPDATE _honkerx_meta SET value = '1000' WHERE key = 'schema_version'`)
	exec("older", `UPDATE _honkerx_meta SET value = '1' WHERE key = 'schema_version'`)
	exec("others", `CREATE TABLE customers (id INTEGER PRIMARY KEY)`)
	require.NoError(t, os.WriteFile(at("text"), []byte(strings.Repeat("this is no database\n", 100)), 0o644))
	require.NoError(t, os.WriteFile(at("empty"), nil, 0o644))
	require.NoError(t, os.Mkdir(at("folder"), 0o755))

	for name, want := range map[string]struct {
		code int
		text string
	}{
		"missing": {codeUsage, "no such file"},
		"folder":  {codeUsage, "a directory"},
		"text":    {codeRefused, "not a SQLite database"},
		"empty":   {codeRefused, "no honker tables"},
		"others":  {codeRefused, "no honker tables"},
		"older":   {codeRefused, "and this library needs version"},
		"newer":   {codeRefused, "newer"},
	} {
		before := contents(t, dir)
		if name != "older" {
			got := ran(t, dir, "-f", name, "upgrade", "--yes")
			require.Equal(t, want.code, got.code, "%s: %s", name, got.err)
			require.Contains(t, got.err, want.text)
			require.Equal(t, before, contents(t, dir), name)
		}
		for _, args := range []string{
			"status", "queues", "check", "enqueue jobs 1", "queue pause jobs", "dead discard --all --yes",
			"queue limits jobs --running 1", "queue retention jobs --dead 1d", "stream retention t --count 1", "job wait 1", "work jobs -- true", "locks", "lock run l -- touch ran", "streams", "stream tail t --follow",
			"stream publish t 1", "consumer rm t c", "groups", "schedule add n jobs @daily", "schedule next n", "limits", "notify c 1", "listen c",
			"events", "backup copy.db", "maintain --once", "vacuum", "schema", "top --once", "metrics", "ui",
		} {
			got := ran(t, dir, append([]string{"-f", name}, strings.Fields(args)...)...)
			require.Equal(t, want.code, got.code, "%s %s: %s", args, name, got.err)
			require.Contains(t, got.err, want.text, "%s %s", args, name)
			require.Contains(t, got.err, "\ntry: ")
			require.Empty(t, got.out)
			require.LessOrEqual(t, strings.Count(got.err, "\n"), 2, got.err)
		}
		require.Equal(t, before, contents(t, dir), name)
	}
}

// Every command that encounters a damaged page reports that the file is damaged and suggests a remedy.
func TestFile_Damaged(t *testing.T) {
	t.Parallel()
	dir, db, q := newFile(t)
	_, err := q.EnqueueMany(t.Context(), make([]int, 15_000))
	require.NoError(t, err)
	require.NoError(t, db.Close())
	file, err := os.OpenFile(filepath.Join(dir, "app.db"), os.O_RDWR, 0)
	require.NoError(t, err)
	_, err = file.WriteAt(bytes.Repeat([]byte("damage"), 40_000), 60*4096)
	require.NoError(t, err)
	require.NoError(t, file.Close())
	helps := func(want string, commands ...string) {
		t.Helper()
		for _, args := range commands {
			got := ran(t, dir, append([]string{"-f", "app.db"}, strings.Fields(args)...)...)
			require.Equal(t, codeRefused, got.code, "%s: %s", args, got.err)
			require.Contains(t, got.err, want, args)
			require.Contains(t, got.err, "\ntry: a backup in its place; to recover what is readable: sqlite3 app.db .recover | sqlite3 recovered.db\n", args)
		}
	}
	helps("the file is damaged: ", "check", "doctor", "status", "queues", "jobs --limit 0")
	require.NoError(t, os.Truncate(filepath.Join(dir, "app.db"), 2*4096))
	helps("app.db is damaged: ", "check", "doctor", "status", "enqueue jobs 1", "dead discard --all --yes")
}

// Read-only commands change neither the file nor its directory.
func TestFile_Looks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	db, err := honker.Open(t.Context(), filepath.Join(dir, "app.db"), nil)
	require.NoError(t, err)
	q := honker.NewQueue[int](db, "jobs", nil)
	_, err = q.Enqueue(t.Context(), 1)
	require.NoError(t, err)
	_, err = q.WorkDue(t.Context(), func(context.Context, *honker.Job[int]) error { return honker.Reject(os.ErrInvalid) }, nil)
	require.NoError(t, err)
	require.NoError(t, db.Close())
	before := contents(t, dir)
	for _, args := range []string{
		"status", "queues", "queue show jobs", "jobs", "job show 1", "dead", "dead groups", "dead export", "check", "__complete queue show ",
		"queue limits jobs", "queue retention jobs", "stream retention t", "queue keys jobs", "queue traffic", "locks", "streams", "stream read t", "stream tail t", "consumers", "groups", "schedules",
		"limits", "schema", "schema _honker_live", "top --once", "batches",
	} {
		got := ran(t, dir, strings.Fields(args)...)
		require.Zero(t, got.code, "%s: %s", args, got.err)
	}
	require.Equal(t, before, contents(t, dir))
}

// contents returns the checksums of the files in dir.
func contents(t *testing.T, dir string) map[string][32]byte {
	t.Helper()
	sums := make(map[string][32]byte)
	for _, entry := range must1(os.ReadDir(dir)) {
		if entry.Type().IsRegular() {
			sums[entry.Name()] = sha256.Sum256(must1(os.ReadFile(filepath.Join(dir, entry.Name()))))
		}
	}
	return sums
}
