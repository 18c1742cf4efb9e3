package main

import (
	"bufio"
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

func TestGolden_Columns(t *testing.T) {
	inFile(t, func(t *testing.T, s *session) {
		for _, format := range []string{"table", "tsv", "json", "jsonl", "name"} {
			s.do("jobs", "--columns", "phase,id", "-o", format)
		}
		s.do("jobs", "--queue", "nobody's", "--columns", "phase,id")
		s.do("jobs", "--columns", "id", "--columns", "queue", "--limit", "1", "-q")
		s.do("jobs", "--why", "--columns", "why,id", "--limit", "1", "-o", "table")
		s.do("jobs", "--why", "--columns", "payload")
		s.do("jobs", "--count", "--columns", "id")
		s.do("jobs", "--columns", "id,size")
		s.do("jobs", "--columns", "id,")
		s.do("jobs", "--columns", "")
		s.do("queue", "show", "emails", "--columns", "dead,queue", "-o", "table")
		s.do("queue", "retention", "emails", "--done", "1h", "--columns", "queue", "-q")
		s.do("queue", "retention", "emails", "--done", "1h", "--columns", "matched", "--dry-run")
		s.do("top", "--columns", "queue")
		s.do("__complete", "jobs", "--columns", "")
		s.do("__complete", "queues", "--columns", "dead,re")
		for _, args := range []string{ // these print sentences unless --columns is given
			"status --columns severity,queue", "doctor --columns code,queue", "job why 8 --columns code,until", "job logs 3 --columns n,worker",
			"schema _honker_live --columns name,about", "queue pause emails --columns queue,changed", "dead requeue 3 --columns changed,verb",
		} {
			s.do(append(strings.Fields(args), "-o", "table")...)
		}
		s.matches("columns")
	})
}

// An unknown column is rejected before anything is changed.
func TestColumns_BeforeAChange(t *testing.T) {
	inFile(t, func(t *testing.T, s *session) {
		before := s.run("jobs", "-o", "json").out
		for _, args := range []string{
			"enqueue emails 1 --columns nonsense", "dead discard 1 --columns matched,nonsense", "queue pause emails --columns reason,nonsense",
			"queue retention emails --dead 1s --yes --columns matched", "enqueue emails 1 --columns id -o json",
		} {
			require.Equal(t, codeUsage, s.run(strings.Fields(args)...).code, args)
		}
		require.Equal(t, before, s.run("jobs", "-o", "json").out)
		require.NotContains(t, s.run("queue", "show", "emails", "-o", "json").out, `"pause": {`)
		require.Contains(t, s.run("queue", "retention", "emails", "-o", "json").out, `"max_age": "0s"`)
	})
}

// A feed prints only the selected columns, in the header as well.
func TestColumns_Feed(t *testing.T) {
	t.Parallel()
	for shown, want := range map[format]string{formatTable: "NAME  KIND\nx     queue\n", formatTSV: "name\tkind\nx\tqueue\n"} {
		var b bytes.Buffer
		a := &app{out: bufio.NewWriter(&b), format: shown, columns: []string{"name", "kind"}}
		f, err := newFeed(a, happenedView)
		require.NoError(t, err)
		require.NoError(t, f.add(happened{Kind: "queue", Name: "x"}))
		require.Equal(t, want, b.String())
	}
}

// Each command accepts the columns of its tables. Each command with a table is run with all its columns in a
// different order.
func TestColumns_EachCommand(t *testing.T) {
	tables := []string{ // in this order, so that each command finds its object
		"status", "doctor", "audit", "check", "workers emails", "queues", "queue show emails", "queue why emails", "queue pause emails", "queue resume emails",
		"queue limits emails --running 3", "queue keys emails", "queue traffic emails", "queue retention emails --done 1h", "queue retention emails",
		"jobs", "jobs groups", "job show 1", "job why 8", "job logs 3", "job run-now 8", "job cancel 8", "job bury 7", "dead", "dead groups", "dead requeue 1", "dead discard 2", "dead import -",
		"enqueue emails 1", "enqueue emails -", "streams", "stream show orders", "stream publish orders 1", "stream publish orders -", "stream read orders",
		"stream tail orders", "stream retention orders", "consumers", "consumer show orders shipping", "consumer seek orders shipping 1",
		"consumer rm orders shipping", "groups", "group show orders mailers", "group dead orders mailers", "group redeliver orders mailers 1",
		"group discard orders mailers 2", "group rm orders mailers", "schedules", "schedule show nightly", "schedule add poll emails @daily", "schedule trigger poll",
		"schedule pause poll", "schedule resume poll", "schedule next poll", "schedule rm poll", "locks", "lock break deploy",
		"relays", "relay show webhooks", "relay dead webhooks", "relay requeue webhooks --all", "relay discard webhooks --all", "relay partitions", "relay break webhooks 3",
		"actors", "actor show osis", "actor pause osis", "actor resume osis", "actor stop osis", "presences", "presence break hero:meta:actor:inst:osis:default:2", "limits", "batches",
		"flow ls", "flow show order 17", "flow steps order 17", "flow signal order 17 go 1", "flow restart order 17", "flow cancel order 17",
		"batch show 1", "batch cancel 1 --yes", "notify cache 1",
		"backup copy.db", "vacuum", "sizes", "schema", "schema _honker_live", "upgrade", "version",
	}
	endless := []string{"events", "listen", "move", "work"} // or need a server
	without := []string{"concepts", "dead export", "job wait", "lock run", "maintain", "man", "metrics", "top", "ui"}
	inFile(t, func(t *testing.T, s *session) {
		fillStreams(t)
		require.NoError(t, fillBlocked(t).Close())
		db := open(t, "app.db")
		fillFlows(t, db)
		_, err := db.TryLock(t.Context(), "deploy", nil)
		require.NoError(t, err)
		defer func() { require.NoError(t, db.Close()) }()
		_, err = db.NewBatch(t.Context(), nil)
		require.NoError(t, err)
		s.stdin = `{"queue": "emails", "payload": 1}`
		tried := map[string]bool{}
		for _, line := range tables {
			path, known := offered(t, line)
			tried[path] = true
			slices.Reverse(known)
			got := s.run(append(strings.Fields(line), "--columns", strings.Join(known, ","))...)
			header, _, _ := strings.Cut(got.out, "\n")
			if strings.Contains(line, "retention") || path == "jobs" {
				require.Contains(t, got.err, "--columns: unknown column", "%s may print another table", line)
				continue
			}
			require.Equal(t, strings.Join(known, "\t"), header, "%s: %s", line, got.err)
		}
		for _, line := range without {
			_, known := offered(t, line)
			require.Nil(t, known, line)
		}
		var missing []string
		each((&app{}).root(), func(cmd *cobra.Command) {
			path := strings.TrimPrefix(cmd.CommandPath(), "honker ")
			if !cmd.HasSubCommands() && !tried[path] && !slices.Contains(append(endless, without...), path) {
				missing = append(missing, path)
			}
		})
		require.Empty(t, missing, "commands that this test does not know")
	})
}

// offered returns the path of the command in line and the columns that the command accepts.
func offered(t *testing.T, line string) (path string, known []string) {
	t.Helper()
	cmd, _, err := (&app{}).root().Find(strings.Fields(line))
	require.NoError(t, err)
	if flag := cmd.Flags().Lookup("columns"); flag != nil {
		known = slices.Clone(flag.Value.(columnNames).known)
	}
	return strings.TrimPrefix(cmd.CommandPath(), "honker "), known
}

// each calls f for all commands below cmd.
func each(cmd *cobra.Command, f func(*cobra.Command)) {
	for _, below := range cmd.Commands() {
		f(below)
		each(below, f)
	}
}
