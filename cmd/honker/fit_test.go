package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
)

var (
	wideNames = []string{strings.Repeat("tenant-", 36), strings.Repeat("日本語", 40), "a\x1b[2Jb\nc"}
	manyMarks = "e" + strings.Repeat("\u0301", 300)
)

// fillWide adds jobs with long texts to queues with these names.
func fillWide(t *testing.T, queues ...string) {
	t.Helper()
	db := open(t, "app.db")
	defer func() { require.NoError(t, db.Close()) }()
	for _, name := range queues {
		q := honker.NewQueue[json.RawMessage](db, name, nil)
		for range 2 {
			_, err := q.Enqueue(t.Context(), json.RawMessage(`{"html": "`+strings.Repeat("<p>hello ", 2000)+`"}`), honker.MaxAttempts(1))
			require.NoError(t, err)
		}
		_, err := q.Claim(t.Context(), strings.Repeat("host-", 30), 1)
		require.NoError(t, err)
		jobs, err := q.Claim(t.Context(), "w", 1)
		require.NoError(t, err)
		require.NoError(t, jobs[0].Reject(t.Context(), errors.New(strings.Repeat("550 mailbox unavailable ", 40))))
	}
	_, err := db.NewBatch(t.Context(), &honker.BatchOptions{Name: strings.Repeat("import ", 20)})
	require.NoError(t, err)
}

// No line of a list is wider than the terminal, whatever the names.
func TestTable_FitsTerminal(t *testing.T) {
	inFile(t, func(t *testing.T, s *session) {
		fillStreams(t)
		fillWide(t, append(wideNames, manyMarks)...)
		s.atTerm = true
		for _, s.width = range []int{1, 12, 40, 80, 200} {
			for _, args := range []string{
				"queues", "jobs", "jobs --phase running", "jobs --why --queue emails", "dead", "dead groups", "workers", "batches", "streams", "consumers", "groups",
				"schedules", "sizes", "stream tail orders -n 9", "jobs --columns payload,queue,last_error", "jobs --columns id,payload -q",
			} {
				s.color = s.width == 80
				got := s.run(strings.Fields(args)...)
				require.Zero(t, got.code, got.err)
				require.NotEmpty(t, got.out, args)
				for line := range strings.Lines(got.out) {
					require.LessOrEqual(t, cells(strings.TrimRight(line, "\n")), s.width, "%s: %q", args, line)
				}
			}
		}
	})
}

// A narrow terminal shortens texts, and does without columns. --wide and a pipe print everything.
func TestGolden_Fit(t *testing.T) {
	inFile(t, func(t *testing.T, s *session) {
		fillWide(t, wideNames...)
		s.atTerm, s.width = true, 80
		for _, args := range []string{"queues", "jobs", "jobs --phase running", "dead", "dead groups", "workers", "batches", "dead --limit 1"} {
			s.do(strings.Fields(args)...)
		}
		s.matches("fit")
		whole := strings.Repeat("550 mailbox unavailable ", 39)
		require.NotContains(t, s.run("dead").out, whole)
		require.Contains(t, s.run("dead", "--wide").out, whole)
		s.atTerm = false
		require.Contains(t, s.run("dead", "-o", "table").out, whole)
	})
}

// Headers are dim, dead jobs red, and work that has been due for long is yellow.
func TestTable_Colors(t *testing.T) {
	inFile(t, func(t *testing.T, s *session) {
		time.Sleep(time.Hour)
		s.atTerm, s.color = true, true
		got := s.run("queues").out
		require.Contains(t, got, string(dim)+"QUEUE"+reset)
		require.Contains(t, got, string(red)+"3"+reset)
		require.Contains(t, got, string(yellow)+"1h4m ago"+reset)
		require.Contains(t, s.run("jobs").out, string(red)+"dead"+reset)
		s.color = false
		require.NotContains(t, s.run("queues").out, "\x1b")
	})
}

// Notes and errors follow the rows that were printed before them.
func TestNotes_FollowTable(t *testing.T) {
	inFile(t, func(t *testing.T, s *session) {
		var both bytes.Buffer
		code := run(t.Context(), []string{"dead", "--limit", "2", "-o", "table"}, console{stdout: &both, stderr: &both, noNotices: true,
			getenv: func(name string) string { return s.env[name] }})
		require.Zero(t, code)
		lines := strings.Split(strings.TrimSpace(both.String()), "\n")
		require.Len(t, lines, 4, both.String())
		require.True(t, strings.HasPrefix(lines[3], "there may be more: "), fmt.Sprint(lines))
	})
}
