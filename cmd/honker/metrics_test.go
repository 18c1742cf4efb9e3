package main

import (
	"bufio"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
)

// Without --listen, the metrics are printed once, as text.
func TestMetrics_Print(t *testing.T) {
	dir, _, q := newFile(t)
	_, err := q.EnqueueMany(t.Context(), []int{1, 2})
	require.NoError(t, err)
	got := ran(t, dir, "metrics", "-f", "app.db")
	require.Zero(t, got.code, got.err)
	require.Empty(t, got.err)
	require.Contains(t, got.out, "\nhonker_queue_jobs{phase=\"ready\",queue=\""+q.Name()+"\"} 2\n")
	require.Contains(t, got.out, "# TYPE honker_queue_oldest_ready_seconds gauge\n")
	require.Contains(t, got.out, "\nhonker_problems{code=\"wal\",severity=\"warn\"} 0\n")

	got = ran(t, dir, "metrics", "-f", "app.db", "-o", "json")
	require.Equal(t, codeUsage, got.code)
	got = ran(t, dir, "metrics", "-f", "none.db")
	require.Equal(t, codeUsage, got.code)
	require.Empty(t, got.out)
	got = ran(t, dir, "metrics", "-f", "app.db", "--listen", "no address")
	require.Equal(t, codeUsage, got.code)
}

// Queues can be folded by a substitution, and only some keep their names.
func TestMetrics_QueueLabels(t *testing.T) {
	dir, db, _ := newFile(t)
	for i, name := range []string{"mails-1", "mails-22", "z-heavy", "a", "b"} {
		_, err := honker.NewQueue[int](db, name, nil).EnqueueMany(t.Context(), make([]int, []int{1, 1, 9, 1, 1}[i]))
		require.NoError(t, err)
	}
	got := ran(t, dir, "metrics", "-f", "app.db", "--queue-label", `s/-\d+$//`)
	require.Zero(t, got.code, got.err)
	require.Contains(t, got.out, "\nhonker_queue_jobs{phase=\"ready\",queue=\"mails\"} 2\n")
	require.Contains(t, got.out, "\nhonker_queues_folded 0\n")

	got = ran(t, dir, "metrics", "-f", "app.db", "--max-queues", "1")
	require.Zero(t, got.code, got.err)
	require.Contains(t, got.out, "\nhonker_queue_jobs{phase=\"ready\",queue=\"z-heavy\"} 9\n")
	require.Contains(t, got.out, "\nhonker_queue_jobs{phase=\"ready\",queue=\"_other\"} 4\n")
	require.Contains(t, got.out, "\nhonker_queues_folded 4\n")

	for _, bad := range []string{"mails", "s/(/x/", "s/a/b", "s/a/b/x", "y/a/b/"} {
		require.Equal(t, codeUsage, ran(t, dir, "metrics", "-f", "app.db", "--queue-label", bad).code, bad)
	}
	require.Equal(t, codeUsage, ran(t, dir, "metrics", "-f", "app.db", "--max-queues", "0").code)
}

// A substitution replaces the first match, or all matches with g.
func TestSubstitution(t *testing.T) {
	for text, want := range map[string]string{`s/\d+//`: "a-b2", `s/\d+//g`: "a-b", `s/a(\d)/x$1/`: "x1-b2", `s/none/x/`: "a1-b2"} {
		rename, err := substitution(text)
		require.NoError(t, err)
		require.Equal(t, want, rename("a1-b2"), text)
	}
}

// With --listen, the metrics are served until an interrupt, even while other processes open and close
// the file.
func TestMetrics_Listen(t *testing.T) {
	dir, db, q := newFile(t)
	require.NoError(t, db.Close())
	cmd := command(t, dir, "metrics", "-f", "app.db", "--listen", "127.0.0.1:0")
	stderr, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line, err := bufio.NewReader(stderr).ReadString('\n')
	require.NoError(t, err)
	url, serves := strings.CutPrefix(strings.TrimSpace(line), "serving ")
	require.True(t, serves, line)
	require.NotContains(t, scraped(t, url), "honker_queue_jobs{")

	db = honkertest.OpenFile(t, filepath.Join(dir, "app.db"), nil)
	_, err = honker.NewQueue[int](db, q.Name(), nil).Enqueue(t.Context(), 1)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		return strings.Contains(scraped(t, url), "\nhonker_queue_jobs{phase=\"ready\",queue=\""+q.Name()+"\"} 1\n")
	}, deadline, 100*time.Millisecond)
	require.NoError(t, db.Close())
	require.Contains(t, scraped(t, url), "honker_queue_jobs{")
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.Zero(t, codeOf(t, cmd.Wait()))
}

func scraped(t *testing.T, url string) string {
	t.Helper()
	answer, err := http.Get(url)
	require.NoError(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, answer.StatusCode, "%s", text)
	return string(text)
}
