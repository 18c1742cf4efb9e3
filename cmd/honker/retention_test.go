package main

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
)

func TestGolden_Retention(t *testing.T) {
	inFile(t, func(t *testing.T, s *session) {
		s.each("queue", "retention", "emails")
		s.do("queue", "retention", "emails", "--dead", "17m", "--dry-run")
		s.do("queue", "retention", "emails", "--dead-count", "1", "--dry-run", "-o", "table")
		s.do("queue", "retention", "emails", "--dead-count", "3", "--dry-run")
		s.do("queue", "retention", "emails", "--dead-count", "1")
		s.atTerm, s.stdin = true, "n\n"
		s.do("queue", "retention", "emails", "--dead-count", "1")
		s.stdin = "y\n"
		s.do("queue", "retention", "emails", "--dead-count", "1", "--done", "1d")
		s.atTerm = false
		s.do("queue", "retention", "emails", "--dead-count", "0", "--dead", "30d", "--done-count", "1000", "-o", "json")
		s.do("maintain", "--once")
		s.do("dead", "-o", "name")
		s.do("queue", "retention", "emails", "--none", "--yes")
		s.do("queue", "retention", "emails", "--dead-count", "-1", "--dry-run")
		s.do("queue", "retention", "emails", "--dead", "soon")
		s.do("queue", "keep", "emails")
		s.each("stream", "retention", "orders")
		for range 3 {
			s.run("stream", "publish", "orders", "1")
		}
		s.do("stream", "retention", "orders", "--count", "1", "--dry-run")
		s.do("stream", "retention", "orders", "--count", "1")
		s.do("stream", "retention", "orders", "--age", "7d", "--count", "1", "--yes", "-o", "table")
		s.do("streams")
		s.do("stream", "retention", "orders", "--count", "0")
		s.do("stream", "retention", "orders:*", "--age", "7d")
		s.do("__complete", "queue", "retention", "")
		s.do("__complete", "stream", "retention", "")
		s.matches("retention")
	})
}

// A dry run counts the rows that the next round of maintenance will delete.
func TestRetention_DryRun(t *testing.T) {
	inFile(t, func(t *testing.T, s *session) {
		db := open(t, "app.db")
		q, topic := honker.NewQueue[int](db, "many", nil), honker.NewStream[int](db, "many", nil)
		require.NoError(t, q.SetRetention(t.Context(), honker.QueueRetention{Done: honker.Retention{MaxCount: 1000}}))
		for n := range 20 {
			_, err := q.Enqueue(t.Context(), n)
			require.NoError(t, err)
			_, err = q.WorkDue(t.Context(), func(_ context.Context, job *honker.Job[int]) error {
				if job.Args%2 == 0 {
					return honker.Reject(errors.New("even"))
				}
				return nil
			}, nil)
			require.NoError(t, err)
			_, err = topic.Publish(t.Context(), n)
			require.NoError(t, err)
			time.Sleep(700 * time.Millisecond)
		}
		require.NoError(t, db.Close())
		for _, c := range []struct{ args, what string }{
			{"queue retention many --dead 10s", "jobs"}, {"queue retention many --dead-count 3", "jobs"}, {"queue retention many --done 4s --dead 6s", "jobs"},
			{"queue retention many --done-count 2", "jobs"}, {"queue retention many --none", "jobs"},
			{"stream retention many --age 9s", "events"}, {"stream retention many --count 4", "events"},
		} {
			there := func() int64 { return countedIn(t, s, c.what) }
			args := strings.Fields(c.args)
			var would struct{ Matched int64 }
			require.NoError(t, json.Unmarshal([]byte(s.run(append(args, "--dry-run", "-o", "json")...).out), &would))
			require.Positive(t, would.Matched, c.args)
			before := there()
			got := s.run(append(args, "--yes")...)
			require.Zero(t, got.code, got.err)
			require.Zero(t, s.run("maintain", "--once").code)
			require.Equal(t, would.Matched, before-there(), c.args)
		}
	})
}

// countedIn counts the jobs in a queue or the events in a topic.
func countedIn(t *testing.T, s *session, what string) int64 {
	t.Helper()
	args := []string{"jobs", "--queue", "many", "--limit", "0", "-o", "name"}
	if what == "events" {
		args = []string{"stream", "read", "many", "--limit", "0", "-o", "name"}
	}
	got := s.run(args...)
	require.Zero(t, got.code, got.err)
	return int64(strings.Count(got.out, "\n"))
}
