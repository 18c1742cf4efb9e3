package main

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
)

// Each command that takes a queue tells of a misspelled name, and does its work nevertheless.
func TestQueueNames_DidYouMean(t *testing.T) {
	inFile(t, func(t *testing.T, s *session) {
		const near = "no such queue yet: emials; did you mean emails?\n"
		for _, args := range []string{
			"queue show emials", "queue why emials", "queue keys emials", "queue traffic emials", "queue limits emials", "queue retention emials", "queue resume emials",
			"jobs --queue emials", "dead --queue emials", "dead groups --queue emials", "dead export --queue emials", "dead requeue --queue emials --yes", "workers emials",
			"audit --queue emials", "dead requeue 1 --to emials --dry-run", "queue pause emials",
		} {
			got := s.run(strings.Fields(args)...)
			require.Contains(t, []int{codeFine, codeWouldChange}, got.code, "%s: %s", args, got.err)
			require.Contains(t, got.err, near, args)
			require.NotContains(t, s.run(append(strings.Fields(args), "-q")...).err, "no such queue", args)
		}
		require.Contains(t, s.run("queue", "show", "emials", "-o", "json").out, `"by": "ann@example"`)
		require.NotContains(t, s.run("queue", "show", "emials").err, "no such", "it has a pause now")
	})
}

// A queue without jobs is known by its traffic and workers. A command that may begin to use a queue is silent about a new name.
func TestQueueNames_Known(t *testing.T) {
	inFile(t, func(t *testing.T, s *session) {
		require.Equal(t, "no such queue yet: nothing; see honker queues\n", s.run("queue", "pause", "nothing").err)
		require.Contains(t, s.run("enqueue", "emials", "1").err, "did you mean emails?\n")
		require.Contains(t, s.run("schedule", "add", "poll", "email", "@daily").err, "did you mean emails?\n")
		require.Empty(t, s.run("enqueue", "invoices", "1").err)
		require.Empty(t, s.run("schedule", "add", "poll", "feeds", "@daily").err)

		db := open(t, "app.db")
		q := honker.NewQueue[int](db, "mails", nil)
		_, err := q.Enqueue(t.Context(), 1)
		require.NoError(t, err)
		n, err := q.WorkDue(t.Context(), func(ctx context.Context, _ *honker.Job[int]) error { return nil }, nil)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		require.NoError(t, db.Close())
		require.NotContains(t, s.run("queue", "why", "mails").err, "no such queue", "its traffic is known")
	})
}

func TestNear(t *testing.T) {
	t.Parallel()
	names := []string{"emails", "emails-eu", "reports", "mails", "größe", "a b"}
	for name, want := range map[string][]string{
		"emials": {"emails", "mails"}, "Emails": {"emails", "mails"}, "repots": {"reports"}, "x": nil, "": nil, "invoices": nil, "grösse": {"größe"}, "a  b": {"'a b'"}, "emails-us": {"emails-eu", "emails"},
	} {
		got := near(name, names)
		if want == nil {
			require.Empty(t, got, name)
			continue
		}
		require.Equal(t, want, got, name)
	}
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"abc", "acb", 1}, {"kitten", "sitting", 3}, {"ab", "ba", 1}} {
		require.Equal(t, c.want, edits(c.a, c.b), c)
	}
}

// Hints name the command for the request.
func TestHints_Commands(t *testing.T) {
	inFile(t, func(t *testing.T, s *session) {
		got := s.run("job", "cancel", "6")
		require.Equal(t, codeNo, got.code)
		require.Contains(t, got.err, "try: honker job cancel --running 6\n")
		require.Zero(t, s.run("job", "cancel", "--running", "6").code)
		require.Contains(t, s.run("requeue", "5").err, "did you mean dead requeue or relay requeue?")
		require.Contains(t, s.run("pause", "emails").err, "did you mean actor pause or queue pause or schedule pause?")
		require.Contains(t, s.run("statsu").err, "did you mean status?")
	})
}
