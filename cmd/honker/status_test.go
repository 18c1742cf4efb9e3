//go:build unix

package main

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Each output format of status has the problems and the queues, and programs can tell them apart.
func TestStatus_Formats(t *testing.T) {
	t.Parallel()
	dir, _, q := newFile(t)
	_, err := q.EnqueueMany(t.Context(), []int{1, 2})
	require.NoError(t, err)
	jobs, err := q.Claim(t.Context(), "w", 1)
	require.NoError(t, err)
	require.NoError(t, jobs[0].Reject(t.Context(), errors.New("no")))
	p := person{t: t, env: map[string]string{fileVariable: filepath.Join(dir, "app.db")}}

	tables := strings.Split(p.run("status").out, "\n\n")
	require.Len(t, tables, 2)
	require.True(t, strings.HasPrefix(tables[0], "severity\tcode\tqueue\t"), tables[0])
	require.Equal(t, p.run("queues").out, tables[1])
	tables = strings.Split(p.run("status", "-q").out, "\n\n")
	require.Len(t, tables, 2)
	require.True(t, strings.HasPrefix(tables[0], "warn\t"), tables[0])
	require.Equal(t, p.run("queues", "-q").out, tables[1])
	names := strings.Split(p.run("status", "-o", "name").out, "\n\n")
	require.Equal(t, []string{"dead", "jobs\n"}, names)

	severities, queues := 0, 0
	for line := range strings.Lines(p.run("status", "-o", "jsonl").out) {
		var v struct{ Severity, Queue string }
		require.NoError(t, json.Unmarshal([]byte(line), &v))
		require.Equal(t, "jobs", v.Queue)
		if v.Severity != "" {
			severities++
		} else {
			queues++
		}
	}
	require.Equal(t, []int{1, 1}, []int{severities, queues})
	require.Contains(t, p.run("status", "-o", "json").out, `"queues": [`)
	require.Equal(t, "code\ndead\n", p.run("status", "--columns", "code").out)
	require.NotContains(t, p.run("doctor").out, "\n\n")

	p.atTerm = true
	require.Contains(t, p.run("status").out, "QUEUE  READY")

	empty := person{t: t, env: map[string]string{fileVariable: filepath.Join(t.TempDir(), "empty.db")}}
	require.NoError(t, open(t, empty.env[fileVariable]).Close())
	require.Equal(t, "\n", empty.run("status", "-q").out)
}

// A live worker has no last-seen time, because it doesn't commit while it waits.
func TestWorkers_Seen(t *testing.T) {
	t.Parallel()
	dir, _, _ := newFile(t)
	cmd, errs, _ := worker(t, dir, "true", "--worker", "waits", "-q")
	p := person{t: t, env: map[string]string{fileVariable: filepath.Join(dir, "app.db")}}
	row := func() []string {
		return strings.Fields(p.run("workers", "-o", "table", "-q", "--columns", "id,alive,seen").out)
	}
	require.Eventually(t, func() bool { return len(row()) == 3 }, deadline, 10*time.Millisecond)
	require.Equal(t, []string{"waits", "alive", "-"}, row())
	require.NotContains(t, p.run("workers", "-o", "tsv", "-q", "--columns", "seen").out, "-\n")
	require.NoError(t, cmd.Process.Kill())
	_, _ = errs.ReadString(0)
	require.Error(t, cmd.Wait())
	require.Eventually(t, func() bool { return strings.Join(row()[:2], " ") == "waits gone" }, deadline, 10*time.Millisecond)
	require.NotEqual(t, "-", row()[2])
}
