package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
)

// A backup of a file in use is intact, and an existing file is not overwritten.
func TestProcess_Backup(t *testing.T) {
	t.Parallel()
	dir, db, q := newFile(t)
	_, err := q.EnqueueMany(t.Context(), make([]int, 100))
	require.NoError(t, err)
	got := ran(t, dir, "backup", "copy.db", "-f", "app.db", "-o", "name")
	require.Equal(t, said{out: "copy.db\n"}, got)
	require.Equal(t, "100\n", ran(t, dir, "jobs", "--count", "-f", "copy.db", "-q").out)
	require.Zero(t, ran(t, dir, "check", "-f", "copy.db").code)

	got = ran(t, dir, "backup", "copy.db", "-f", "app.db")
	require.Equal(t, codeUsage, got.code)
	require.Contains(t, got.err, "the file exists already")
	got = ran(t, dir, "backup", "none/copy.db", "-f", "app.db")
	require.Equal(t, codeUsage, got.code)
	require.Contains(t, got.err, "no such directory")

	for _, name := range []string{"app.db", "app.db-wal", "app.db-shm", "app.db-journal", "app.db-wake/copy.db"} {
		got = ran(t, dir, "backup", name, "-f", "app.db")
		require.Equal(t, codeUsage, got.code, "%s: %s", name, got.err)
	}
	require.NoError(t, db.Close())
	require.NoError(t, os.Chmod(filepath.Join(dir, "app.db"), 0o444))
	require.Zero(t, ran(t, dir, "backup", "second.db", "-f", "app.db").code, "a file that may only be read")
}

// Only a single process at a time runs a round of maintenance.
func TestProcess_MaintainOnce(t *testing.T) {
	t.Parallel()
	dir, db, q := newFile(t)
	require.NoError(t, q.SetRetention(t.Context(), honker.QueueRetention{}))
	lock, err := db.TryLock(t.Context(), "honker-maintenance", nil)
	require.NoError(t, err)
	got := ran(t, dir, "maintain", "--once")
	require.Equal(t, codeNo, got.code)
	require.Contains(t, got.err, "try: honker locks")
	require.NoError(t, lock.Unlock(t.Context()))
	require.Equal(t, said{err: "there was nothing to do\n"}, ran(t, dir, "maintain", "--once"))
}

func TestGolden_File(t *testing.T) {
	inFile(t, func(t *testing.T, s *session) {
		s.do("schema", "-o", "table")
		s.do("schema", "-o", "name")
		s.do("schema", "_honker_dead")
		s.do("schema", "_honker_locks", "-o", "json")
		s.do("schema", "customers")
		s.do("vacuum", "-o", "name")
		s.do("limits", "-o", "table")
		s.do("queue", "limits", "emails", "--running", "3", "--in-order", "-q")
		db := open(t, "app.db")
		_, err := db.RateLimit("api", 10, 60e9).Allow(t.Context())
		require.NoError(t, err)
		require.NoError(t, db.Close())
		s.each("limits")
		s.each("notify", "cache", `{"drop": "users"}`)
		s.do("notify", "cache", "{drop}")
		s.do("listen", "cache", "-o", "json")
		s.do("events", "-o", "json")
		s.matches("file")
	})
}

// A queue without jobs is listed with its limits.
func TestLimits_EmptyQueue(t *testing.T) {
	t.Parallel()
	dir, db, q := newFile(t)
	p := person{t: t, env: map[string]string{fileVariable: filepath.Join(dir, "app.db")}}
	require.NoError(t, honker.NewQueue[int](db, "zero", nil).SetLimits(t.Context(), honker.Limits{PerKey: 2}))
	require.NoError(t, q.SetLimits(t.Context(), honker.Limits{Running: 3}))
	require.Equal(t, "queue\tjobs\t0\t\trunning 3\nqueue\tzero\t0\t\tper key 2\n", p.run("limits", "-q").out)
	_, err := q.Enqueue(t.Context(), 1)
	require.NoError(t, err)
	_, err = q.Claim(t.Context(), "w", 1)
	require.NoError(t, err)
	require.Equal(t, "queue\tjobs\t1\t\trunning 3\nqueue\tzero\t0\t\tper key 2\n", p.run("limits", "-q").out)
	require.NoError(t, q.SetLimits(t.Context(), honker.Limits{}))
	require.Equal(t, "queue\tzero\t0\t\tper key 2\n", p.run("limits", "-q").out)
}

// Vacuum reports the size before and after.
func TestVacuum_Sizes(t *testing.T) {
	inFile(t, func(t *testing.T, s *session) {
		got := s.run("vacuum", "-q")
		require.Zero(t, got.code, got.err)
		require.Len(t, strings.Split(got.out, "\t"), 3)
	})
}

// Every table of a file has a description.
func TestSchema_About(t *testing.T) {
	t.Parallel()
	_, db, _ := newFile(t)
	tables, err := tablesOf(t.Context(), db)
	require.NoError(t, err)
	there := map[string]bool{}
	for _, table := range tables {
		require.NotEmpty(t, table.About, table.Name)
		there[table.Name] = true
	}
	for name := range about {
		require.True(t, there[name], "there is no table %s", name)
	}
	require.NotEmpty(t, aboutTable("_honkerx_relay_mail_queues"))
	require.Empty(t, aboutTable("customers"))
}
