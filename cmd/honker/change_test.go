package main

import (
	"bytes"
	"context"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
)

// After an interrupt between two transactions, the first is kept and the command reports how much is left.
func TestChange_Interrupted(t *testing.T) {
	dir, db, _ := newFile(t)
	const all = 20_000
	_, err := db.SQL().ExecContext(t.Context(), `WITH RECURSIVE some(n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM some WHERE n < ?)
INSERT INTO _honker_dead (id, queue, payload, died_at) SELECT n, 'jobs', '1', n FROM some`, all)
	require.NoError(t, err)
	left := func() (n int) {
		require.NoError(t, db.SQL().QueryRowContext(t.Context(), `SELECT count(*) FROM _honker_dead`).Scan(&n))
		return n
	}
	p := &person{t: t, env: map[string]string{"HONKER_FILE": dir + "/app.db"}}
	ctx, interrupt := context.WithCancel(t.Context())
	done := make(chan said, 1)
	go func() { done <- p.runCtx(ctx, "dead", "discard", "--all", "--yes", "-o", "json") }()
	for left() == all {
		require.Empty(t, done)
	}
	interrupt()
	got := <-done
	if left() == 0 {
		t.Skip("it was done before the interrupt came")
	}
	require.Equal(t, codeInterrupted, got.code, got.err)
	require.Contains(t, got.err, "interrupted: discarded ")
	require.Contains(t, got.err, " of 20,000 dead jobs, ")
	require.Contains(t, got.out, `"left": `)
}

// An interrupt cancels an unanswered question, and nothing is changed.
func TestConfirm_Interrupted(t *testing.T) {
	inFile(t, func(t *testing.T, s *session) {
		unanswered, answer := io.Pipe()
		ctx, interrupt := context.WithTimeout(t.Context(), time.Minute)
		defer interrupt()
		var out, errs bytes.Buffer
		code := run(ctx, []string{"dead", "discard", "--all"}, console{
			stdin: unanswered, stdout: &out, stderr: &errs, inTerm: true, getenv: func(name string) string { return s.env[name] },
		})
		require.NoError(t, answer.Close())
		require.Equal(t, codeInterrupted, code)
		require.Contains(t, errs.String(), "nothing was changed")
		require.Equal(t, "3\n", s.run("dead", "--count", "-q").out)
	})
}

// Jobs that die while the user is being asked aren't part of the number shown, and are kept.
func TestConfirm_LaterDeaths(t *testing.T) {
	inFile(t, func(t *testing.T, s *session) {
		question, answer := io.Pipe()
		var out bytes.Buffer
		done := make(chan int)
		go func() {
			done <- run(t.Context(), []string{"dead", "discard", "--queue", "emails"}, console{
				stdin: question, stdout: &out, stderr: io.Discard, inTerm: true, getenv: func(name string) string { return s.env[name] },
			})
		}()
		time.Sleep(time.Hour)
		db := open(t, "app.db")
		_, err := db.SQL().ExecContext(t.Context(), `INSERT INTO _honker_dead (id, queue, payload, died_at) VALUES (99, 'emails', '1', ?)`, time.Now().Unix())
		require.NoError(t, err)
		require.NoError(t, db.Close())
		_, err = io.WriteString(answer, "yes\n")
		require.NoError(t, err)
		require.Zero(t, <-done)
		require.Contains(t, out.String(), "\t3\t3\t0\t0")
		require.Equal(t, "99\n", s.run("dead", "-o", "name").out)
	})
}

// Each page of a list continues where the previous page ended.
func TestJobs_Pages(t *testing.T) {
	inFile(t, func(t *testing.T, s *session) {
		var pages []string
		after := ""
		for range 3 {
			args := []string{"jobs", "--limit", "3", "-o", "name"}
			if after != "" {
				args = append(args, "--after", after)
			}
			got := s.run(args...)
			require.Zero(t, got.code, got.err)
			pages = append(pages, strings.Fields(got.out)...)
			_, after, _ = strings.Cut(strings.TrimSpace(got.err), "--after ")
		}
		require.Equal(t, []string{"8", "7", "6", "5", "4", "3", "2", "1"}, pages)
		require.Empty(t, after)
	})
}

// The report counts all skipped jobs, and lists the first of them.
func TestChange_SkippedTotal(t *testing.T) {
	dir, _, _ := newFile(t)
	p := &person{t: t, env: map[string]string{"HONKER_FILE": dir + "/app.db"}, stdin: strings.Repeat(`{"queue": "q", "unique": "k", "payload": 1}`+"\n", 150)}
	got := p.run("dead", "import", "-", "--columns", "matched,changed,skipped,left", "-q")
	require.Equal(t, said{out: "150\t1\t149\t0\n"}, got)
	got = p.run("dead", "import", "-", "-o", "json")
	require.Contains(t, got.out, `"skipped_total": 150`)
	p.atTerm = true
	got = p.run("dead", "import", "-")
	require.Equal(t, 100, strings.Count(got.out, "skipped job "), got.out)
	require.Contains(t, got.out, "\nskipped 50 more jobs\n")
}

// Each command that changes something accepts --yes, whether it asks or not. New read-only commands must be added
// to the list.
func TestChange_Yes(t *testing.T) {
	looks := strings.Fields("audit backup batches check completion consumers doctor events export groups help " +
		"jobs keys limits listen locks logs ls man metrics partitions presences concepts " +
		"next queues read relays actors schedules schema show sizes status steps streams tail top traffic ui version wait why workers")
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		path := cmd.CommandPath()
		onlyLooks := slices.Contains(looks, cmd.Name()) && path != "honker queue limits" || path == "honker group dead" || path == "honker relay dead"
		if !cmd.HasSubCommands() && !onlyLooks {
			require.NotNil(t, cmd.Flags().Lookup("yes"), path)
			require.NotNil(t, cmd.Flags().ShorthandLookup("y"), path)
		}
		for _, below := range cmd.Commands() {
			walk(below)
		}
	}
	walk((&app{}).root())

	dir, db, q := newFile(t)
	events := honker.NewStream[int](db, "orders", nil)
	_, err := events.Publish(t.Context(), 1)
	require.NoError(t, err)
	_, err = events.SaveOffset(t.Context(), "mails", 1)
	require.NoError(t, err)
	p := &person{t: t, env: map[string]string{fileVariable: filepath.Join(dir, "app.db")}}
	for _, args := range []string{
		"consumer seek orders mails beginning --yes", "queue pause jobs -y", "queue resume jobs --yes", "enqueue jobs 1 -y", "queue limits jobs --running 1 --yes",
		"consumer rm orders mails --yes", "vacuum --yes",
	} {
		require.Zero(t, p.run(strings.Fields(args)...).code, args)
	}
	jobs, err := q.Claim(t.Context(), "w", 9)
	require.NoError(t, err)
	require.Len(t, jobs, 1)
}
