package honkertest

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/honker-go/honker"
)

var update = flag.Bool("honkertest.update", false, "rewrite the files of honkertest.Golden")

// Golden compares the contents of db with testdata/name.golden and fails the test if they differ.
// The file contains the jobs, dead letters, results, events, consumers, groups, messages, locks and
// schedules, and the rows of the given application tables. IDs and workers are replaced by
// consecutive numbers and times are omitted, so the contents are the same in every run.
//
// With the -honkertest.update flag, Golden writes the file instead. If the test binary defines an
// -update flag, that flag has the same effect. Golden calls t.Fatal if db is on a server.
func Golden(t testing.TB, db *honker.DB, name string, tables ...string) {
	t.Helper()
	requireFile(t, db, "Golden")
	g := &golden{ctx: t.Context(), db: db}
	got, err := g.text(tables)
	if err != nil {
		t.Fatalf("honkertest: golden %s: %v", name, err)
	}
	path := filepath.Join("testdata", name+".golden")
	if updating() {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o777), os.WriteFile(path, []byte(got), 0o666)); err != nil {
			t.Fatalf("honkertest: golden %s: %v", name, err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("honkertest: %s does not exist; run the test with -honkertest.update to write it:\n%s", path, got)
	}
	if err != nil {
		t.Fatalf("honkertest: golden %s: %v", name, err)
	}
	lines := func(text string) []string { return strings.Split(strings.ReplaceAll(text, "\r\n", "\n"), "\n") }
	if diff := lineDiff(lines(string(want)), lines(got)); diff != "" {
		t.Errorf("honkertest: the database differs from %s (-want +got):\n%s", path, diff)
	}
}

// updating reports whether Golden should write files. It also honors -update, the usual name for
// such a flag, which this package cannot define itself because a test may define it.
func updating() bool {
	if f := flag.Lookup("update"); f != nil && f.Value.String() == "true" {
		return true
	}
	return *update
}

// golden formats the contents of a database.
type golden struct {
	ctx     context.Context
	db      *honker.DB
	lines   []string
	jobs    []int64 // sorted
	workers []string
}

func (g *golden) text(tables []string) (string, error) {
	parts := []func() error{g.queues, g.results, g.streams, g.rest}
	for _, part := range parts {
		if err := part(); err != nil {
			return "", err
		}
	}
	for _, table := range tables {
		rows, err := tableRows(g.ctx, g.db.SQL(), "", table, "")
		if err != nil {
			return "", err
		}
		g.lines = append(g.lines, rows...)
	}
	return strings.Join(g.lines, "\n") + "\n", nil
}

func (g *golden) add(format string, args ...any) {
	g.lines = append(g.lines, fmt.Sprintf(format, args...))
}

// job returns the number that stands for a job ID in the output.
func (g *golden) job(id int64) int {
	at, _ := slices.BinarySearch(g.jobs, id)
	return at + 1
}

// worker returns the name that stands for a worker ID in the output, because real worker IDs are
// usually random.
func (g *golden) worker(id string) string {
	at := slices.Index(g.workers, id)
	if at < 0 {
		at = len(g.workers)
		g.workers = append(g.workers, id)
	}
	return "worker " + strconv.Itoa(at+1)
}

// queues adds live and dead jobs, sorted by queue and ID.
func (g *golden) queues() error {
	s, err := readState(g.ctx, g.db)
	if err != nil {
		return err
	}
	all := append(s.live, s.dead...)
	for _, j := range all {
		g.jobs = append(g.jobs, j.ID)
	}
	err = each(g.ctx, g.db.SQL(), `SELECT job_id FROM _honker_results`, func(rows *sql.Rows) error {
		var id int64
		err := rows.Scan(&id)
		g.jobs = append(g.jobs, id)
		return err
	})
	slices.Sort(g.jobs)
	g.jobs = slices.Compact(g.jobs)
	slices.SortStableFunc(all, func(a, b honker.JobInfo) int {
		return cmp.Or(strings.Compare(a.Queue, b.Queue), g.job(a.ID)-g.job(b.ID))
	})
	for _, j := range all {
		g.add("queue %s: job %d %s %s%s", j.Queue, g.job(j.ID), j.Phase, j.Payload, g.details(&j))
	}
	return err
}

// details formats the job fields that differ from their defaults.
func (g *golden) details(j *honker.JobInfo) (text string) {
	if j.Priority != 0 {
		text += fmt.Sprintf(", priority %d", j.Priority)
	}
	if j.Attempts > 0 {
		text += fmt.Sprintf(", attempt %d of %d", j.Attempts, j.MaxAttempts)
	}
	if j.Unique != "" {
		text += fmt.Sprintf(", unique %q", j.Unique)
	}
	if j.Key != "" {
		text += fmt.Sprintf(", key %q", j.Key)
	}
	for _, name := range slices.Sorted(maps.Keys(j.Headers)) {
		text += fmt.Sprintf(", header %q: %q", name, j.Headers[name])
	}
	if !j.ExpiresAt.IsZero() {
		text += ", expires"
	}
	if j.WorkerID != "" {
		text += ", " + g.worker(j.WorkerID)
	}
	return text + errorText(j.LastError)
}

// errorText formats the first line of an error. For a panic, the remaining lines are the stack
// trace.
func errorText(lastError string) string {
	if lastError == "" {
		return ""
	}
	line, _, _ := strings.Cut(lastError, "\n")
	return fmt.Sprintf(", error %q", line)
}

func (g *golden) results() error {
	return each(g.ctx, g.db.SQL(), `SELECT job_id, coalesce(value, 'null') FROM _honker_results ORDER BY job_id`, func(rows *sql.Rows) error {
		var id int64
		var value string
		err := rows.Scan(&id, &value)
		g.add("result: job %d %s", g.job(id), value)
		return err
	})
}

// streams adds the events by topic, along with the positions of their consumers and groups.
func (g *golden) streams() error {
	events, err := readEvents(g.ctx, g.db, 0)
	if err != nil {
		return err
	}
	// The event at an offset may have been deleted, so use the last event at or before the offset.
	number := func(offset int64) int {
		at, exact := slices.BinarySearchFunc(events, offset, func(e Event, o int64) int { return int(min(max(e.Offset-o, -1), 1)) })
		if exact {
			at++
		}
		return at
	}
	for _, e := range events {
		key := ""
		if e.Key != "" {
			key = fmt.Sprintf(" key %q", e.Key)
		}
		g.add("stream %s: event %d%s %s", e.Topic, number(e.Offset), key, e.Payload)
	}
	read := func(query, format string) error {
		return each(g.ctx, g.db.SQL(), query, func(rows *sql.Rows) error {
			var topic, name string
			var offset int64
			err := rows.Scan(&topic, &name, &offset)
			g.add(format, topic, name, number(offset))
			return err
		})
	}
	return errors.Join(
		read(`SELECT topic, name, offset FROM _honker_stream_consumers ORDER BY 1, 2`, "stream %s: consumer %q is at event %d"),
		read(`SELECT topic, name, cursor FROM _honkerx_groups ORDER BY 1, 2`, "stream %s: group %q is at event %d"),
		g.groupClaims(number))
}

const sqlGroupClaims = `SELECT g.topic, g.name, c.offset, CASE c.state WHEN 0 THEN 'held' WHEN 1 THEN 'back' ELSE 'dead' END, c.attempts, coalesce(c.last_error, '')
FROM _honkerx_group_claims AS c JOIN _honkerx_groups AS g ON g.id = c.group_id ORDER BY 1, 2, 3`

func (g *golden) groupClaims(number func(int64) int) error {
	return each(g.ctx, g.db.SQL(), sqlGroupClaims, func(rows *sql.Rows) error {
		var topic, name, state, lastError string
		var offset, attempts int64
		err := rows.Scan(&topic, &name, &offset, &state, &attempts, &lastError)
		g.add("stream %s: group %q event %d is %s, attempts %d%s", topic, name, number(offset), state, attempts, errorText(lastError))
		return err
	})
}

// rest adds messages, locks, schedules and pauses, one per line.
func (g *golden) rest() error {
	text := func(query string) error {
		return each(g.ctx, g.db.SQL(), query, func(rows *sql.Rows) error {
			var line string
			err := rows.Scan(&line)
			g.lines = append(g.lines, line)
			return err
		})
	}
	return errors.Join(
		text(`SELECT 'channel ' || channel || ': ' || payload FROM _honker_notifications ORDER BY id`),
		text(`SELECT 'lock ' || name FROM _honker_locks ORDER BY name`),
		text(`SELECT 'schedule ' || name || ': ' || cron_expr || ' to queue ' || queue || ' ' || payload || iif(enabled, '', ', paused')
FROM _honker_scheduler_tasks ORDER BY name`),
		text(`SELECT 'queue ' || queue || ': paused' || coalesce(', ' || reason, '') FROM _honkerx_queues WHERE paused_ms IS NOT NULL ORDER BY queue`))
}
