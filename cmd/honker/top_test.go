package main

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
)

func TestGolden_Top(t *testing.T) {
	inFile(t, func(t *testing.T, s *session) {
		s.do("queue", "pause", "nightly reports", "--reason", "no paper", "-q")
		got := s.run("top", "--once")
		require.Zero(t, got.code, got.err)
		// The size of the file depends on the page size of this machine.
		first, rest, _ := strings.Cut(got.out, "\n")
		require.True(t, strings.HasPrefix(first, "app.db  "), first)
		require.Contains(t, first, "in 0/s  out 0/s  1 worker  00:17:30")
		s.text.WriteString("$ honker top --once\n" + rest + "\n")
		s.do("top")
		s.do("top", "-o", "json")
		s.do("top", "--once", "-o", "tsv")
		s.matches("top")
	})
}

// inReading returns a frame with many queues and all kinds of names.
func inReading() frame {
	now := time.Date(2026, 11, 23, 12, 4, 7, 0, time.UTC)
	r := reading{File: &admin.FileInfo{Path: "/srv/app.db", Size: 412e6, WAL: 3.1e6}, Workers: 3, At: now, Flows: map[string]flow{}}
	for i, name := range []string{"emails", "thumbs", strings.Repeat("long name ", 20), "größe", "a\x1b[2Jb\nc", strings.Repeat("日本語", 20), "e\u0301te\u0301 🚀", "q8"} {
		r.Queues = append(r.Queues, honker.QueueStats{Queue: name, Ready: honker.Count{N: int64(i * 12_041), More: i == 3}, Dead: honker.Count{N: int64(i % 3)},
			OldestReady: now.Add(-time.Duration(i) * 249 * time.Second)})
		r.Flows[name] = flow{In: float64(i) * 88, Out: 0.4, Fail: 3, Ran: 96 * time.Millisecond, Tried: [flowMinutes]int64{1, 2, 3, 0, int64(i)}, Failed: 4}
	}
	for i := range 8 {
		text := fmt.Sprintf("queue %d: 214 jobs are ready\x07", i)
		r.Problems = append(r.Problems, problemGroup{Severity: "error", Text: text, Since: now.Add(-time.Hour),
			Problems: []problem{{Severity: "error", Text: text, Cause: "\x1b[2Jno", Do: []string{"honker workers reports"}}}})
	}
	return frame{reading: r, color: true}
}

// No frame exceeds the terminal's width or height, no matter what the names are.
func TestFrame_Fits(t *testing.T) {
	t.Parallel()
	for _, width := range []int{1, 2, 12, 40, 79, 80, 120, 250} {
		for _, height := range []int{1, 8, 10, 24, 60} {
			f := inReading()
			f.width, f.height, f.selected, f.foot = width, height, "q8", []string{"p: pause"}
			lines := f.lines()
			require.LessOrEqual(t, len(lines), max(height, 1+2+2+1))
			found := false
			for _, line := range lines {
				require.LessOrEqual(t, cells(line), width, "%q", line)
				require.NotContains(t, line, "\x1b[2J")
				require.NotContains(t, line, "\x07")
				found = found || strings.HasPrefix(line, ">")
			}
			require.True(t, found || width < 3, "what is selected is in sight, at %d × %d:\n%s", width, height, strings.Join(lines, "\n"))
		}
	}
}

// A line is cut to the width of the terminal, and its color is turned off.
func TestFrame_Cut(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		in    string
		width int
		want  string
	}{
		{"emails", 0, "emails"}, {"emails", 6, "emails"}, {"emails", 5, "emai…"}, {"größen", 4, "grö…"}, {"emails", 1, "…"},
		{"\x1b[31mred\x1b[0m", 3, "\x1b[31mred\x1b[0m"}, {"\x1b[31mredder\x1b[0m", 3, "\x1b[31mre…\x1b[0m"},
		{"日本語", 6, "日本語"}, {"日本語", 5, "日本…"}, {"日本語", 4, "日…"}, {"e\u0301e\u0301e\u0301", 3, "e\u0301e\u0301e\u0301"}, {"e\u0301e\u0301e\u0301", 2, "e\u0301…"},
	} {
		require.Equal(t, c.want, cut(c.in, c.width))
	}
}

// The last 60 seconds combine the current minute with part of the previous minute.
func TestFlow_LastMinute(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 23, 12, 4, 15, 0, time.UTC)
	minute := now.Truncate(time.Minute)
	f := flowOf([]admin.Minute{
		{Start: minute.Add(-10 * time.Minute), Enqueued: 1e6, Acked: 1e6},
		{Start: minute.Add(-9 * time.Minute), Acked: 8},
		{Start: minute.Add(-time.Minute), Enqueued: 600, Acked: 60, Ran: 60 * time.Second},
		{Start: minute, Enqueued: 60, Acked: 20, Died: 12, Ran: 40 * time.Second},
	}, now)
	require.InDelta(t, (600*0.75+60)/60, f.In, 1e-9)
	require.InDelta(t, (60*0.75+20)/60, f.Out, 1e-9)
	require.InDelta(t, 12.0/60, f.Fail, 1e-9)
	require.Equal(t, plain, f.color())
	require.Equal(t, red, flowOf([]admin.Minute{{Start: minute, Acked: 5, Retried: 4, Died: 2}}, now).color())
	require.Equal(t, time.Second, f.Ran)
	require.Equal(t, [flowMinutes]int64{0: 8, 8: 60, 9: 32}, f.Tried)
	require.Equal(t, "▂▁▁▁▁▁▁▁█▅", f.sparkline())
	require.False(t, f.still())
	require.True(t, flowOf([]admin.Minute{{Start: minute.Add(-2 * time.Minute), Acked: 5}}, now).still())
}

// Queues with problems come first, in the order of their problems. Other orders are chosen by a key.
func TestFrame_Order(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 23, 12, 4, 7, 0, time.UTC)
	queue := func(name string, ready int64, oldest time.Duration) honker.QueueStats {
		return honker.QueueStats{Queue: name, Ready: honker.Count{N: ready}, OldestReady: now.Add(-oldest)}
	}
	idle := honker.QueueStats{Queue: "idle"}
	f := frame{reading: reading{At: now,
		Queues:   []honker.QueueStats{queue("a", 1, time.Second), queue("busy", 9, time.Minute), queue("emails", 5, time.Hour), idle, queue("reports", 2, time.Minute+time.Second)},
		Flows:    map[string]flow{"busy": {In: 9}, "emails": {Fail: 80}},
		Problems: []problemGroup{{Problems: []problem{{Queue: "emails"}}}, {Problems: []problem{{Queue: "reports"}, {Queue: "emails"}, {Queue: "a"}}}},
	}}
	for o, want := range map[order][]string{
		orderTrouble:  {"emails", "reports", "a", "busy", "idle"},
		orderReady:    {"busy", "emails", "reports", "a", "idle"},
		orderOldest:   {"emails", "reports", "busy", "a", "idle"},
		orderFailures: {"emails", "busy", "a", "idle", "reports"},
		orderName:     {"a", "busy", "emails", "idle", "reports"},
	} {
		f.order = o
		var got []string
		for _, q := range f.shownQueues() {
			got = append(got, q.Queue)
		}
		require.Equal(t, want, got, o.String())
	}
	require.Equal(t, orderTrouble, orderName.next())
}

// The rate covers the last minute, or the time since the count began.
func TestCommitCount_Rate(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 23, 12, 4, 15, 0, time.UTC)
	c := &commitCount{began: now}
	require.Zero(t, c.rate(now))
	for range 30 {
		c.add(now)
	}
	require.InDelta(t, 30, c.rate(now), 1e-9)
	require.InDelta(t, 3, c.rate(now.Add(10*time.Second)), 1e-9)
	c.add(now.Add(59 * time.Second))
	require.InDelta(t, 31.0/59, c.rate(now.Add(59*time.Second)), 1e-9)
	c.add(now.Add(time.Minute)) // reuses the slot of the first second
	require.InDelta(t, 2.0/60, c.rate(now.Add(time.Minute)), 1e-9)
	require.Zero(t, c.rate(now.Add(3*time.Minute)))

	for rate, want := range map[float64]string{0: "commits 0/s", 0.02: "commits 0.0+/s", 1.5: "commits 1.5+/s", 1204.4: "commits 1,204+/s"} {
		require.Equal(t, want, commitsText(rate))
	}
	r, c := reading{At: now}, &commitCount{began: now}
	r.count(c)
	require.True(t, r.still())
	c.add(now)
	r.count(c)
	require.False(t, r.still(), "it is read once more when this is over")
	require.Contains(t, frame{reading: reading{File: &admin.FileInfo{Path: "app.db"}, Commits: r.Commits}}.head(), "commits ")
}

// A quiet file is read once; a busy file is read four times per second.
func TestTop_Readings(t *testing.T) {
	path := filepath.Join(t.TempDir(), "app.db")
	synctest.Test(t, func(t *testing.T) {
		db := open(t, path)
		defer func() { require.NoError(t, db.Close()) }()
		reader, err := honker.Open(t.Context(), path, &honker.Options{ReadOnly: true, NoFileNotices: true, PollInterval: 10 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		defer func() { require.NoError(t, reader.Close()) }()
		q := honker.NewQueue[int](db, "jobs", nil)
		_, err = q.Enqueue(t.Context(), 0)
		require.NoError(t, err)
		ctx, stop := context.WithCancel(t.Context())
		readings := make(chan reading, 1000)
		done := make(chan error)
		a := &app{console: console{getenv: func(string) string { return "" }}, file: path}
		go func() { done <- a.watchTop(ctx, reader, newCommitCount(), func(r reading) { readings <- r }) }()
		time.Sleep(10 * time.Second) // the traffic of the enqueue is written in the meantime
		first := len(readings)
		require.LessOrEqual(t, first, 3)
		require.Positive(t, first)
		time.Sleep(time.Hour)
		require.Len(t, readings, first, "nothing was committed")

		for n := range 500 { // 10 seconds
			_, err := q.Enqueue(t.Context(), n)
			require.NoError(t, err)
			time.Sleep(20 * time.Millisecond)
		}
		time.Sleep(10 * time.Second)
		busy := len(readings) - first
		require.LessOrEqual(t, busy, 45)
		require.GreaterOrEqual(t, busy, 20)
		var last reading
		for len(readings) > 0 {
			last = <-readings
		}
		require.Equal(t, int64(501), last.Queues[0].Ready.N)
		require.NotNil(t, last.Commits)
		require.LessOrEqual(t, *last.Commits, (500+20)/60.0, "each of them, and what is written of the traffic")
		require.GreaterOrEqual(t, *last.Commits, 250/60.0)
		stop()
		require.NoError(t, <-done)
	})
}

// keys presses keys in turn and runs their commands.
func (m *topModel) keys(keys ...string) {
	for _, key := range keys {
		press := tea.KeyPressMsg{Text: key, Code: []rune(key)[0]}
		switch key {
		case "enter":
			press = tea.KeyPressMsg{Code: tea.KeyEnter}
		case "esc":
			press = tea.KeyPressMsg{Code: tea.KeyEscape}
		case "down":
			press = tea.KeyPressMsg{Code: tea.KeyDown}
		}
		if _, do := m.Update(press); do != nil {
			m.Update(do())
		}
	}
}

// Keys select, filter, show, ask before a pause, and resume.
func TestTop_Keys(t *testing.T) {
	inFile(t, func(t *testing.T, s *session) {
		a := &app{console: console{getenv: func(string) string { return "" }, actor: "ann@example", noNotices: true, stderr: new(bytes.Buffer)}, file: "app.db", timeout: time.Second}
		reader := open(t, "app.db")
		defer func() { require.NoError(t, reader.Close()) }()
		m := newTopModel(t.Context(), a, reader, newCommitCount())
		require.Equal(t, []string{"reading…"}, m.screen())
		m.Update(tea.WindowSizeMsg{Width: 100, Height: 30})
		m.Update(m.readNow())
		shows := func(text string) {
			t.Helper()
			require.Contains(t, strings.Join(m.screen(), "\n"), text)
		}
		shows("> nightly reports") // its problem is the first
		m.keys("s", "s", "s", "s", "k")
		shows("s: sort by trouble")
		shows("> emails")
		m.keys("down")
		shows("> nightly reports")
		m.keys("j", "k", "k")
		shows("> emails")
		m.keys("enter")
		shows("in the order of their claims")
		shows(" ready, 1 running, ")
		shows(`{"to": "dan"}`)
		m.keys("d")
		shows("2 jobs, last 16m30s ago")
		m.keys("e")
		shows("  queue emails:")
		shows("    job 6 is running, and no other job of the queue")
		m.Update(tea.WindowSizeMsg{Width: 30, Height: 30})
		m.keys("e")
		shows("    job 6 is running, and no\n    other job of the queue")
		m.Update(tea.WindowSizeMsg{}) // from a terminal that doesn't know its size
		m.keys("e")
		shows("    job 6 is running, and no other job of the queue")
		m.Update(tea.WindowSizeMsg{Width: 100, Height: 30})
		m.keys("esc", "?")
		shows("select a queue")
		m.keys("?", "p")
		shows("pause emails in all processes? [y/N]")
		m.keys("n")
		shows("nothing was changed")
		m.keys("p", "y")
		shows("paused emails")
		require.Contains(t, s.run("queue", "show", "emails", "-o", "json").out, `"by": "ann@example"`)
		m.keys(" ")
		m.Update(m.readNow())
		shows("emails (paused)")
		m.keys("r")
		shows("resumed emails")
		m.keys("r")
		shows("nothing to change")
		m.keys("/", "n", "i", "g")
		shows("/nig_")
		m.keys("enter")
		require.NotContains(t, strings.Join(m.screen(), "\n"), "> emails")
		shows("> nightly reports")
	})
}

// terminal is a terminal in tmux.
type terminal struct {
	t                 *testing.T
	tmux, socket, dir string
}

// newTerminal runs words in a terminal, in dir.
func newTerminal(t *testing.T, dir string, words ...string) *terminal {
	t.Helper()
	tmux, err := exec.LookPath("tmux")
	if err != nil {
		t.Skip("no tmux")
	}
	m := &terminal{t: t, tmux: tmux, socket: filepath.Join(t.TempDir(), "tmux"), dir: dir}
	m.run(append([]string{"-f", os.DevNull, "new-session", "-d", "-x", "90", "-y", "20"}, words...)...)
	t.Cleanup(func() { _ = exec.Command(tmux, "-S", m.socket, "kill-server").Run() })
	return m
}

func (m *terminal) run(args ...string) string {
	m.t.Helper()
	cmd := exec.Command(m.tmux, append([]string{"-S", m.socket}, args...)...)
	cmd.Dir, cmd.Env = m.dir, append(os.Environ(), "TERM=xterm-256color")
	out, err := cmd.CombinedOutput()
	require.NoError(m.t, err, "%v: %s", args, out)
	return string(out)
}

func (m *terminal) screen() string { return m.run("capture-pane", "-p") }

func (m *terminal) shows(text string) {
	m.t.Helper()
	require.Eventually(m.t, func() bool { return strings.Contains(m.screen(), text) }, deadline, 20*time.Millisecond, text)
}

// A terminal shows the queues, including queues that other processes add to. The key q restores the terminal.
func TestTop_Terminal(t *testing.T) {
	t.Parallel()
	dir, db, q := newFile(t)
	_, err := q.Enqueue(t.Context(), 1)
	require.NoError(t, err)
	m := newTerminal(t, dir, "sh")
	m.run("send-keys", "echo before; "+binary+" top; echo after=$?", "Enter")
	m.shows("> jobs")
	m.shows("  commits ")
	require.NotContains(t, m.screen(), "before", "it has a screen of its own")
	_, err = honker.NewQueue[int](db, "reports", nil).Enqueue(t.Context(), 1)
	require.NoError(t, err)
	m.shows("  reports")
	m.run("send-keys", "e")
	m.shows("queue jobs:")
	m.shows("no worker")
	m.run("send-keys", "Escape")
	m.run("resize-window", "-x", "40", "-y", "10")
	m.shows("> jobs")
	m.run("send-keys", "p")
	m.shows("pause jobs")
	m.run("send-keys", "y")
	m.shows("jobs (paused)")
	for line := range strings.Lines(m.screen()) {
		require.LessOrEqual(t, cells(strings.TrimRight(line, "\n")), 40)
	}
	m.run("send-keys", "q")
	m.shows("after=0")
	m.shows("before")
}

// Watching a file without commits takes no processor time. Unlike elapsed time, processor time doesn't depend on what
// else the machine is doing.
func TestTop_QuietCostsNothing(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("the processor time of another process is told by /proc")
	}
	dir, db, _ := newFile(t)
	for n := range 100 { // make a reading expensive enough to measure
		_, err := honker.NewQueue[int](db, fmt.Sprint("q", n), nil).Enqueue(t.Context(), 1)
		require.NoError(t, err)
	}
	m := newTerminal(t, dir, binary, "top")
	m.shows("> q0")
	pid := strings.TrimSpace(m.run("display-message", "-p", "#{pane_pid}"))
	const window, most = 2 * time.Second, 50 * time.Millisecond
	spent := func() time.Duration { return processorTime(t, pid) }
	var cost time.Duration
	require.Eventually(t, func() bool { // the traffic of the enqueue is written in the meantime
		before := spent()
		time.Sleep(window)
		cost = spent() - before
		return cost < most
	}, deadline, window)
	t.Logf("%v in %v", cost, window)
}

// processorTime returns the processor time used by the threads of a process.
func processorTime(t *testing.T, pid string) (sum time.Duration) {
	t.Helper()
	threads, err := filepath.Glob(filepath.Join("/proc", pid, "task", "*", "schedstat"))
	require.NoError(t, err)
	require.NotEmpty(t, threads)
	for _, path := range threads {
		var ns int64
		_, err := fmt.Sscan(string(must1(os.ReadFile(path))), &ns)
		require.NoError(t, err)
		sum += time.Duration(ns)
	}
	return sum
}
