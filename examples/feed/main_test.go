package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/honker-go/honker"
)

// sample is the beginning of the log. It contains malformed lines, alerts and the poisoned address.
var sample = head(testdata, sampleLines)

const sampleLines = 600

// childEnv makes the test binary run as the program, reading the sample.
const childEnv = "FEED_TEST_CHILD"

func TestMain(m *testing.M) {
	rest = honker.Constant(0) // the pauses only help people to watch
	if os.Getenv(childEnv) != "" {
		testdata = sample
		main()
	}
	goleak.VerifyTestMain(m)
}

// A run prints the expected summary. A second run on the same database changes nothing.
func TestFeed_Run(t *testing.T) {
	t.Parallel()
	c := newConfig(t, sample)
	args := []string{"-db", c.db, "-log", c.log, "-rate", "0", "-lookup", "0"}
	first := runMain(t, 0, args...)
	for _, want := range []string{expected(sample), expectedCompact(sample), " | resolvers "} {
		if !strings.Contains(first, want) {
			t.Errorf("%s\nhas no\n%s", first, want)
		}
	}
	second := runMain(t, 0, args...)
	for _, want := range []string{expected(sample), "access:ok: 0 events", "access:error: 0 events"} {
		if !strings.Contains(second, want) {
			t.Errorf("the second run:\n%s\nhas no\n%s", second, want)
		}
	}
	checkBooks(t, c, sampleLines)
}

// README.md shows the output of a run.
func TestFeed_Readme(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	readme := strings.ReplaceAll(string(text), "\r\n", "\n")
	for _, want := range []string{expected(testdata), expectedCompact(testdata)} {
		if !strings.Contains(readme, want) {
			t.Errorf("README.md does not show\n%s", want)
		}
	}
}

// expected returns the summary of a finished run, computed without a database.
func expected(log string) string {
	t := readLog([]byte(log))
	dead := int64(strings.Count("\n"+log, "\n"+poison.String()))
	b := books{at: t.at, log: t, traffic: t.traffic, accounts: []account{
		{standing{name: counterName}, "requests counted", t.ok + t.failed, t.ok + t.failed},
		{standing{name: alarmName}, "alerts written", t.broken, t.broken},
		{standing{name: condenserName}, "errors condensed", t.failed, t.failed},
		{standing{name: resolversName, group: true, dead: dead}, "addresses resolved", t.ok + t.failed - dead, t.ok + t.failed},
	}}
	var w strings.Builder
	b.report(&w)
	return w.String()
}

// expectedCompact returns the expected output of compaction, which keeps dead events.
func expectedCompact(log string) string {
	t, stay := readLog([]byte(log)), int64(0)
	rest := t.ok
	for line := range strings.Lines(log) {
		r, err := parseRequest(strings.TrimSpace(line), 1)
		if err != nil || r.failed() {
			continue
		}
		if rest--; r.IP == poison && rest >= keepOK {
			stay++
		}
	}
	return fmt.Sprintf("\nCompacted access:ok: %d events are gone.\nCompacted access:error: %d events are gone.\n",
		max(0, t.ok-keepOK-stay), max(0, t.failed-keepFailed))
}

// Invalid flags are rejected with exit code 2, and a missing log with 1.
func TestFeed_Flags(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"-rate", "-1"}, {"-lease", "0"}, {"-lookup", "-1s"}, {"-nonsense"}} {
		if said := runMain(t, 2, args...); said != "" {
			t.Errorf("%v: %s", args, said)
		}
	}
	runMain(t, 1, "-log", filepath.Join(t.TempDir(), "none.log"))
}

// A valid line is parsed into its fields. Any other line is malformed.
func TestFeed_Parse(t *testing.T) {
	t.Parallel()
	good := `192.0.2.7 - ann [29/Nov/2024:07:25:02 +0100] "GET /teas?q=\"x\" HTTP/2.0" 200 45051 "-" "app (\"4\")"`
	r, err := parseRequest(good, 17)
	if err != nil || r.Line != 17 || r.IP.String() != "192.0.2.7" || r.Path != "/teas" || r.Bytes != 45051 || r.Agent != `app (\"4\")` {
		t.Errorf("%+v, %v", r, err)
	}
	if r.key() != "/teas" || r.failed() || r.Time.Format(time.DateTime) != "2024-11-29 06:25:02" {
		t.Errorf("%+v", r)
	}
	for _, tc := range []struct{ from, to, key string }{
		{" 200 ", " 503 ", "503"},
		{" 200 45051", " 404 -", "404"},
		{"/teas", "/" + strings.Repeat("é", mostPath), "/" + strings.Repeat("é", mostPath/2-1)},
		{"/teas", "/\x00\xff", "/\uFFFD\uFFFD"},
		{"192.0.2.7", "2001:db8::7", "/teas"},
	} {
		r, err := parseRequest(strings.Replace(good, tc.from, tc.to, 1), 1)
		if err != nil || r.key() != tc.key {
			t.Errorf("%q: key %q, %v", tc.to, r.key(), err)
		}
	}
	for _, bad := range []string{"", good[:60], strings.Replace(good, "192.0.2.7", "host", 1), strings.Replace(good, "Nov", "Nux", 1),
		strings.Replace(good, `GET /teas?q=\"x\" HTTP/2.0`, `\x16\x03\x01`, 1), strings.Replace(good, "200", "999", 1), good + " more"} {
		if r, err := parseRequest(bad, 1); !errors.Is(err, errMalformed) {
			t.Errorf("%q: %+v, %v", bad, r, err)
		}
	}
}

// Lines appended to a followed log are published, but only once they are complete.
func TestFeed_Follow(t *testing.T) {
	t.Parallel()
	c := newConfig(t, head(testdata, 100))
	c.follow = true
	f := openFeed(t, c)
	ctx, interrupt := context.WithCancel(t.Context())
	served := make(chan error)
	go func() { served <- f.serve(ctx) }()

	waitForLines(t, c.db, 100)
	more := strings.TrimPrefix(head(testdata, 103), head(testdata, 100))
	appendTo(t, c.log, more[:len(more)-10])
	waitForLines(t, c.db, 102)
	appendTo(t, c.log, more[len(more)-10:])
	waitForLines(t, c.db, 103)
	interrupt()
	if err := <-served; err != nil {
		t.Error(err)
	}
	c.follow = false
	runFeed(t, c) // handle the events left by the interrupt
	checkBooks(t, c, 103)
}

// The books balance after an interrupted run, and the next run continues it.
func TestFeed_Interrupt(t *testing.T) {
	t.Parallel()
	c := newConfig(t, sample)
	c.rate, c.lookup = 1000, 50*time.Millisecond // the group falls behind
	ctx, interrupt := context.WithCancel(t.Context())
	var said bytes.Buffer
	f, err := open(t.Context(), c, &said)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error)
	go func() { served <- f.serve(ctx) }()
	waitForLines(t, c.db, 300)
	interrupt()
	if err := <-served; err != nil {
		t.Error(err)
	}
	if err := f.close(); err != nil {
		t.Error(err)
	}
	if !regexp.MustCompile(`resolvers .* to do\n(.*\n)*\nInterrupted with [1-9]`).Match(said.Bytes()) {
		t.Errorf("%s", said.String())
	}
	c.rate, c.lookup = 0, 0
	runFeed(t, c)
	checkBooks(t, c, sampleLines)
}

// The audit finds each kind of mismatch.
func TestFeed_WrongBooks(t *testing.T) {
	t.Parallel()
	c := newConfig(t, head(testdata, 150))
	runFeed(t, c)
	f := openFeed(t, c)
	for _, tc := range []struct{ name, spoil, repair string }{
		{"counter", `UPDATE traffic SET requests = requests + 1 WHERE path = '/'`, `UPDATE traffic SET requests = requests - 1 WHERE path = '/'`},
		{"traffic", `UPDATE traffic SET bytes = bytes + 1 WHERE path = '/'`, `UPDATE traffic SET bytes = bytes - 1 WHERE path = '/'`},
		{"resolvers", `INSERT INTO visits VALUES ('??', 1)`, `DELETE FROM visits WHERE country = '??'`},
		{"condenser", `UPDATE _honker_stream SET topic = 'lost' WHERE topic = 'trouble'`, `UPDATE _honker_stream SET topic = 'trouble' WHERE topic = 'lost'`},
		{"published", `UPDATE place SET malformed = malformed + 1`, `UPDATE place SET malformed = malformed - 1`},
	} {
		execute(t, f, tc.spoil)
		if err := audit(t, f); err == nil || !strings.Contains(err.Error(), tc.name) {
			t.Errorf("%v, want one that tells of %q", err, tc.name)
		}
		execute(t, f, tc.repair)
		if err := audit(t, f); err != nil {
			t.Error(err)
		}
	}
	appendTo(t, f.alertsPath(), "1 an alert of nothing\n")
	if err := f.serve(t.Context()); err == nil || !strings.Contains(err.Error(), "alarm") {
		t.Errorf("%v, want one that tells of the alarm", err)
	}
}

func execute(t *testing.T, f *feed, statement string) {
	t.Helper()
	if _, err := f.db.SQL().ExecContext(t.Context(), statement); err != nil {
		t.Fatal(err)
	}
}

func audit(t *testing.T, f *feed) error {
	t.Helper()
	b, err := readBooks(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	return b.err()
}

// The books balance if the run is interrupted before any consumer has started.
func TestFeed_InterruptedAtOnce(t *testing.T) {
	t.Parallel()
	ctx, interrupt := context.WithCancel(t.Context())
	f := openFeed(t, newConfig(t, head(testdata, 150)))
	if err := f.tailer.run(ctx); err != nil {
		t.Fatal(err)
	}
	interrupt()
	if err := f.serve(ctx); err != nil {
		t.Error(err)
	}
	if b, err := readBooks(t.Context(), f); err != nil || b.open() == 0 {
		t.Errorf("%v, %+v: nothing is left to do", err, b)
	}
}

// A second reader of the same log is rejected before it publishes anything. A log that has shrunk
// is rejected too.
func TestFeed_Refused(t *testing.T) {
	t.Parallel()
	c := newConfig(t, head(testdata, 50))
	runFeed(t, c)
	f := openFeed(t, c)
	if err := f.tailer.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.tailer.at.bytes-- // as if another process had published a byte less
	if err := f.tailer.publish(t.Context(), []string{head(testdata, 1)}); !errors.Is(err, errTwo) {
		t.Errorf("%v, want %v", err, errTwo)
	}
	if err := os.Truncate(c.log, 100); err != nil {
		t.Fatal(err)
	}
	if err := f.tailer.run(t.Context()); !errors.Is(err, errShrunk) {
		t.Errorf("%v, want %v", err, errShrunk)
	}
}

// Opening the file of alerts drops an incomplete last line and continues after the last complete
// alert.
func TestFeed_AlarmRecovers(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "alerts.log")
	appendTo(t, path, "7 first\n12 second\n19 thi")
	for _, tc := range []struct {
		fresh bool
		last  int64
		left  string
	}{{false, 12, "7 first\n12 second\n"}, {true, 0, ""}} {
		a, err := openAlarm(path, tc.fresh)
		if err != nil {
			t.Fatal(err)
		}
		a.file.Close()
		if text, err := os.ReadFile(path); a.last != tc.last || string(text) != tc.left || err != nil {
			t.Errorf("last %d, left %q, %v", a.last, text, err)
		}
	}
}

// On a terminal, the display is redrawn in place.
func TestFeed_Display(t *testing.T) {
	t.Parallel()
	var w bytes.Buffer
	d := &display{w: &w, terminal: true, shown: time.Now()}
	s := standings{at: place{lines: 7}, head: 9, all: []standing{
		{name: "counter", offset: 8, lag: 1},
		{name: "resolvers", offset: 5, lag: 2, group: true, leased: 3, reclaim: 4, dead: 1, members: 2},
	}}
	d.show(s, false)
	d.show(s, false)
	got := regexp.MustCompile(`[\r\x1b]\[?[KJ]?`).ReplaceAllString(w.String(), "")
	want := strings.Join([]string{
		"line 7   head 9   0 lines/s",
		"             offset    lag  leased  reclaim  dead",
		"counter           8      1",
		"resolvers         5      2       3        4     1   2 members", "",
	}, "\n")
	if got != want+"4A"+want {
		t.Errorf("%q", got)
	}
}

func newConfig(t *testing.T, log string) config {
	t.Helper()
	dir := t.TempDir()
	c := config{db: filepath.Join(dir, "feed.db"), log: filepath.Join(dir, "access.log"), lease: 2 * time.Second}
	appendTo(t, c.log, log)
	return c
}

func openFeed(t *testing.T, c config) *feed {
	t.Helper()
	f, err := open(t.Context(), c, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

func runFeed(t *testing.T, c config) {
	t.Helper()
	f, err := open(t.Context(), c, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.serve(t.Context()), f.close()); err != nil {
		t.Fatal(err)
	}
}

// runMain calls run in this process and returns its stdout.
func runMain(t *testing.T, code int, args ...string) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	if got := run(t.Context(), args, &stdout, &stderr); got != code {
		t.Fatalf("exit code %d, want %d\n%s%s", got, code, &stdout, &stderr)
	}
	return stdout.String()
}

// checkBooks checks a finished database that no process has open.
func checkBooks(t *testing.T, c config, lines int64) {
	t.Helper()
	f := openFeed(t, c)
	b, err := readBooks(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.err(); err != nil || b.open() != 0 || b.at.lines != lines {
		t.Errorf("%v, %d open, %d lines", err, b.open(), b.at.lines)
	}
	if err := f.db.Check(t.Context()); err != nil {
		t.Error(err)
	}
	poisoned := int64(strings.Count(head(testdata, int(lines)), "\n"+poison.String()))
	if dead := b.accounts[len(everybody)-1].dead; dead != poisoned {
		t.Errorf("%d dead, want %d", dead, poisoned)
	}
}

func head(text string, lines int) string {
	all := slices.Collect(strings.Lines(text))
	return strings.Join(all[:lines], "")
}

func appendTo(t *testing.T, path, text string) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err == nil {
		_, err = file.WriteString(text)
		file.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// waitForLines waits until that many lines have been published, by any process.
func waitForLines(t *testing.T, path string, lines int64) {
	t.Helper()
	db, err := honker.Open(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		if at, err := readPlace(t.Context(), db.SQL()); err == nil && at.lines >= lines {
			return
		}
	}
	t.Error("there never were " + strconv.FormatInt(lines, 10) + " lines")
}
