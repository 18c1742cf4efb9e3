package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
	"github.com/honker-go/honker/seal"
)

// In JSON, fields have the names of the API, and numbers keep their digits. Payloads that are not JSON become
// strings.
func TestJSON_Values(t *testing.T) {
	t.Parallel()
	type part struct {
		WorkerID string
		IDs      []int64
		At, Zero time.Time
		For      time.Duration
		Payload  json.RawMessage
		Other    json.RawMessage
		Nothing  *int
		Headers  map[string]string
		Few      honker.Count
		Many     honker.Count
	}
	got, err := marshal(part{
		WorkerID: "a<b>&\"\u2028", IDs: []int64{math.MaxInt64}, At: time.Date(2026, 11, 23, 9, 0, 0, 5e8, time.FixedZone("", 3600)),
		For: 90 * time.Second, Payload: json.RawMessage(`{ "n": 12345678901234567890.10, "n": 1e400 }`), Other: json.RawMessage("{not json"),
		Headers: map[string]string{"b": "2", "a": "1"}, Few: honker.Count{N: 7}, Many: honker.Count{N: 100, More: true},
	}, "", "")
	require.NoError(t, err)
	require.Equal(t, `{"worker_id":"a<b>&\"\u2028","ids":[9223372036854775807],"at":"2026-11-23T08:00:00.5Z","zero":null,"for":"1m30s",`+
		`"payload":{"n":12345678901234567890.10,"n":1e400},"other":"{not json","nothing":null,"headers":{"a":"1","b":"2"},"few":7,"many":100,"at_least":["many"]}`, string(got))
	for name, want := range map[string]string{"ID": "id", "PID": "pid", "IDs": "ids", "WorkerID": "worker_id", "AsOf": "as_of", "N": "n", "MaxAttempts": "max_attempts", "SQL": "sql", "WALLimit": "wal_limit"} {
		require.Equal(t, want, snake(name))
	}
}

// A terminal shows the key of a sealed payload. Programs get the stored payload.
func TestOutput_SealedPayload(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "app.db")
	codec, err := seal.New(seal.Keys{Current: "2026-11", Ring: map[string][]byte{"2026-11": make([]byte, 32)}}, nil)
	require.NoError(t, err)
	db, err := honker.Open(t.Context(), path, &honker.Options{Codec: codec})
	require.NoError(t, err)
	id, err := honker.NewQueue[string](db, "mails", nil).Enqueue(t.Context(), "secret")
	require.NoError(t, err)
	info, err := db.Job(t.Context(), id)
	require.NoError(t, err)
	require.NoError(t, db.Close())

	env := map[string]string{"HONKER_FILE": path}
	terminal, script := &person{t: t, atTerm: true, env: env}, &person{t: t, env: env}
	for _, args := range [][]string{{"jobs"}, {"job", "show", "1"}} {
		require.Contains(t, terminal.run(args...).out, fmt.Sprintf("sealed with key 2026-11, %d bytes", len(info.Payload)))
		require.Contains(t, script.run(append(args, "-o", "json")...).out, `"$seal": {`)
	}
	require.Contains(t, script.run("jobs").out, string(info.Payload))
}

// A payload can neither move a terminal's cursor nor forge a table row.
func TestOutput_HostileText(t *testing.T) {
	t.Parallel()
	hostile := "a\x1b[2Jb\x07\u202ec\u009bd\xffe\x00f\tg\r\nh\\"
	for _, shown := range []format{formatTable, formatTSV} {
		var b bytes.Buffer
		a := &app{console: console{stdout: &b}, out: bufio.NewWriter(&b), format: shown}
		l, err := newList(a, view[string]{columns: []column[string]{{"text", text}, {"end", func(string) cell { return text("end") }}}})
		require.NoError(t, err)
		require.NoError(t, l.add(hostile))
		require.NoError(t, l.close("texts"))
		require.NoError(t, a.out.Flush())
		require.NotContains(t, strings.ReplaceAll(b.String(), "\tend", ""), "\x1b")
		require.Equal(t, 2, strings.Count(b.String(), "\n"), "%q", b.String())
		for _, r := range strings.ReplaceAll(strings.ReplaceAll(b.String(), "\t", ""), "\n", "") {
			require.False(t, unsafe(r), "%q", b.String())
		}
		if shown == formatTSV {
			require.Equal(t, "text\tend\na\\x1b[2Jb\\a\\u202ec\\u009bd\\ufffde\\x00f\\tg\\r\\nh\\\\\tend\n", b.String())
		}
	}
}

// obeyed returns the characters in text that a terminal would act on.
func obeyed(text string) (found []rune) {
	for _, r := range text {
		if r != '\t' && unsafe(r) {
			found = append(found, r)
		}
	}
	return found
}

// JSON contains no characters that a terminal would act on, and decodes to the same values.
func TestJSON_HostileText(t *testing.T) {
	t.Parallel()
	type value struct {
		Text    string
		Payload json.RawMessage
		Broken  json.RawMessage
	}
	const hostile = "a\x1b[2J\x7f b\u202ec\u009bd\u2066\u061c é 日"
	in := value{hostile, json.RawMessage(`{"n": 1.50, "s": "` + hostile[6:] + `"}`), json.RawMessage("[\"\xff\"]")}
	for _, indent := range []string{"", "  "} {
		text, err := marshal(in, "", indent)
		require.NoError(t, err)
		require.Empty(t, obeyed(string(text)), "%q", text)
		require.True(t, utf8.Valid(text))
		require.Contains(t, string(text), `\u202ec\u009bd\u2066\u061c é 日`)
		require.Contains(t, string(text), "1.50")
		var out value
		require.NoError(t, json.Unmarshal(text, &out))
		require.Equal(t, hostile, out.Text)
		require.JSONEq(t, string(in.Payload), string(out.Payload))
		require.JSONEq(t, `["\ufffd"]`, string(out.Broken))
	}
}

// Output for people, including hints and metrics, contains no characters that a terminal would act on. An export to a
// file has the exact bytes of the payloads.
func TestOutput_HostileFile(t *testing.T) {
	t.Parallel()
	dir, db, _ := newFile(t)
	const hostile = "q\x1b]0;x\x07\u009b2J\u202e\x7f"
	q := honker.NewQueue[string](db, hostile, nil)
	_, err := q.EnqueueMany(t.Context(), []string{"\u009b\u202e\x7f", "x"})
	require.NoError(t, err)
	jobs, err := q.Claim(t.Context(), "w", 1)
	require.NoError(t, err)
	require.NoError(t, jobs[0].Reject(t.Context(), errors.New(hostile)))
	env := map[string]string{"HONKER_FILE": filepath.Join(dir, "app.db")}
	for _, args := range [][]string{
		{"jobs", "-o", "json"}, {"jobs", "-o", "jsonl"}, {"dead", "export"}, {"metrics"}, {"status"}, {"doctor"}, {"job", "show", "1", "-o", "json"},
		{"job", "why", "2", "-o", "json"}, {"queue", "show", hostile, "-o", "json"}, {"enqueue", hostile, "{"}, {"job", "show", hostile},
		{"queue", "show", "none" + hostile}, {"limits", hostile}, {"dead", "discard", "--queue", hostile, "--dry-run"}, {"job", "wait", "1"}, {"no" + hostile},
		{"-f", dir + hostile, "status"},
	} {
		p := person{t: t, env: env, atTerm: true}
		got := p.run(args...)
		require.Empty(t, obeyed(got.out), "%q: %q", args, got.out)
		require.Empty(t, obeyed(got.err), "%q: %q", args, got.err)
	}
	p := person{t: t, env: env}
	require.Contains(t, p.run("dead", "export").out, "\"payload\":\"\u009b\u202e\x7f\"")
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(p.run("metrics").out))
	require.NoError(t, err)
	require.Contains(t, families["honker_queue_jobs"].String(), `q\\x1b]0;x\\a\\u009b2J\\u202e\\x7f`)
}

// Columns are aligned even if values have colors or multi-byte characters.
func TestTable_Aligned(t *testing.T) {
	t.Parallel()
	for color, want := range map[bool]string{
		false: "NAME    N  LAST\nÄäää  999  x\nb       1\n",
		true:  "\x1b[2mNAME\x1b[0m    \x1b[2mN\x1b[0m  \x1b[2mLAST\x1b[0m\n\x1b[31mÄäää\x1b[0m  999  x\n\x1b[31mb\x1b[0m       1\n",
	} {
		var b bytes.Buffer
		a := &app{console: console{color: color}, out: bufio.NewWriter(&b)}
		err := a.writeTable([]string{"name", "n", "last"}, [][]cell{
			{text("Ääää").in(red), number(999), text("x")}, {text("b").in(red), number(1), text("")},
		}, nil)
		require.NoError(t, errors.Join(err, a.out.Flush()))
		require.Equal(t, want, b.String())
	}
}

// A time is shown relative to now, and the zero time as a dash.
func TestTable_Times(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		require.Equal(t, cell{human: "now", raw: "2000-01-01T00:00:00Z"}, when(time.Now()))
		require.Equal(t, "1m1s ago", when(time.Now().Add(-61*time.Second)).human)
		require.Equal(t, "in 1d1h", when(time.Now().Add(25*time.Hour)).human)
		require.Equal(t, cell{human: "-"}, when(time.Time{}))
	})
}

// Columns stay aligned on a terminal, where wide characters take two cells and combining marks take none.
func TestTable_Cells(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]int{
		"": 0, "abc": 3, "größe": 5, "gro\u0308\u00dfe": 5, "日本語": 6, "ﾆﾎﾝ": 3, "한국어": 6, "e\u0301": 1, "🚀": 2, "👩\u200d💻": 2, "🇨🇭": 2,
		"\x1b[31mred\x1b[0m": 3, "–…": 2,
	} {
		require.Equal(t, want, cells(value), "%q", value)
		var b bytes.Buffer
		a := &app{out: bufio.NewWriter(&b), quiet: true}
		require.NoError(t, a.writeTable([]string{"name", "n"}, [][]cell{{text(value), text("x")}, {text("12345678"), text("x")}}, nil))
		require.NoError(t, a.out.Flush())
		if strings.ContainsRune(value, '\x1b') {
			continue // escapes in a value are shown, not obeyed
		}
		line, _, _ := strings.Cut(b.String(), "\n")
		require.Equal(t, value+strings.Repeat(" ", 8-want+2)+"x", line)
	}
}

// An abbreviated value has at most 60 cells, no matter how many characters that is.
func TestTable_Long(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{
		strings.Repeat("a", 60): strings.Repeat("a", 60), strings.Repeat("a", 61): strings.Repeat("a", 59) + "…",
		strings.Repeat("語", 30): strings.Repeat("語", 30), strings.Repeat("語", 31): strings.Repeat("語", 29) + "…",
		strings.Repeat("e\u0301", 61): strings.Repeat("e\u0301", 59) + "…", strings.Repeat("🚀", 31): strings.Repeat("🚀", 29) + "…",
		"two\n lines": "two lines",
	} {
		require.Equal(t, want, brief(value))
	}
	marks := brief("e" + strings.Repeat("\u0301", 1<<20))
	require.Less(t, len(marks), 2000, "marks without a width are bounded too")
}

// A closed pipe isn't an error, no matter where in the output it happens.
func TestOutput_ClosedPipe(t *testing.T) {
	inFile(t, func(t *testing.T, s *session) {
		fillStreams(t)
		for _, args := range []string{
			"status", "queues", "jobs", "dead", "job show 1", "dead groups", "enqueue emails 1", "version", "--help", "queue limits emails", "queue traffic",
			"streams", "stream read orders", "stream tail orders", "stream publish orders 1", "consumers", "group dead orders mailers", "schedules -q",
			"schedule next @daily", "notify cache 1", "schema", "schema _honker_live", "check -q",
		} {
			for _, format := range []string{"table", "tsv", "json", "jsonl"} {
				var errs bytes.Buffer
				code := run(t.Context(), append(strings.Fields(args), "-o", format), console{
					stdin: strings.NewReader(""), stdout: closed{}, stderr: &errs, getenv: func(name string) string { return s.env[name] },
				})
				require.Zero(t, code, "%s: %s", args, errs.String())
				require.Empty(t, errs.String(), args)
			}
		}
	})
}

type closed struct{}

func (closed) Write([]byte) (int, error) { return 0, &ioError{syscall.EPIPE} }

// ioError resembles *os.PathError, which has no Is method.
type ioError struct{ err error }

func (e *ioError) Error() string { return "write |1: " + e.err.Error() }
func (e *ioError) Unwrap() error { return e.err }

// A full disk is an error, unlike a closed pipe.
func TestOutput_FullDisk(t *testing.T) {
	t.Parallel()
	var errs bytes.Buffer
	code := run(t.Context(), []string{"version"}, console{stdout: full{}, stderr: &errs, getenv: func(string) string { return "" }})
	require.Equal(t, codeRefused, code)
	require.Contains(t, errs.String(), "no space left")
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

var _ io.Writer = full{}

func TestFlags_Times(t *testing.T) {
	t.Parallel()
	var past, future time.Time
	began := time.Now()
	require.NoError(t, ago(&past).Set("7d"))
	require.NoError(t, fromNow(&future).Set("90m"))
	require.WithinDuration(t, began.Add(-7*24*time.Hour), past, time.Hour)
	require.WithinDuration(t, began.Add(90*time.Minute), future, time.Hour)
	require.NoError(t, ago(&past).Set("2026-11-23T09:00:00+01:00"))
	require.True(t, past.Equal(time.Date(2026, 11, 23, 8, 0, 0, 0, time.UTC)))
	require.NoError(t, ago(&past).Set("2026-11-23"))
	require.True(t, past.Equal(time.Date(2026, 11, 23, 0, 0, 0, 0, time.Local)))
	for _, bad := range []string{"", "now", "-1h", "1", "d", "-1d", "1.5d", "99999999999d", "9999999999999h", "2026-13-01"} {
		require.Error(t, ago(&past).Set(bad), bad)
		require.Error(t, spanFlag{new(time.Duration)}.Set(bad), bad)
	}
}

// Suggested commands can be pasted into a shell.
func TestShellWord(t *testing.T) {
	t.Parallel()
	for word, want := range map[string]string{
		"emails": "emails", "a.b/c-d_e:f": "a.b/c-d_e:f", "": "''", "two words": "'two words'", "it's": `'it'\''s'`,
		"$(rm -rf /)": "'$(rm -rf /)'", "a;b": "'a;b'", "größe": "größe",
	} {
		require.Equal(t, want, shellWord(word))
	}
}

// The minutes within a step are added up, and gaps are kept.
func TestTraffic_Steps(t *testing.T) {
	t.Parallel()
	hour := time.Date(2026, 11, 23, 9, 0, 0, 0, time.UTC)
	minute := func(n int) time.Time { return hour.Add(time.Duration(n) * time.Minute) }
	got := inSteps([]admin.Minute{
		{Start: minute(1), Enqueued: 1, Claimed: 2, Acked: 3, Retried: 4, Died: 5, Snoozed: 6, Wait: time.Second, Ran: 2 * time.Second, MaxWait: 3 * time.Second},
		{Start: minute(9), Enqueued: 1, Claimed: 1, Acked: 1, Retried: 1, Died: 1, Snoozed: 1, Wait: time.Second, Ran: time.Second, MaxWait: time.Second},
		{Start: minute(30), Enqueued: 7},
	}, 10*time.Minute)
	require.Equal(t, []admin.Minute{
		{Start: hour, Enqueued: 2, Claimed: 3, Acked: 4, Retried: 5, Died: 6, Snoozed: 7, Wait: 2 * time.Second, Ran: 3 * time.Second, MaxWait: 3 * time.Second},
		{Start: minute(30), Enqueued: 7},
	}, got)
}

func TestFlags_Rates(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]honker.Rate{
		"10/s": {N: 10, Per: time.Second}, "100/m": {N: 100, Per: time.Minute}, "5/90s": {N: 5, Per: 90 * time.Second}, "1/d": {N: 1, Per: 24 * time.Hour}, "0": {},
	} {
		var r honker.Rate
		require.NoError(t, rateFlag{&r}.Set(in))
		require.Equal(t, want, r)
	}
	for _, bad := range []string{"", "10", "10/", "/s", "0/s", "-1/s", "10/0s", "10/x", "a/s"} {
		require.Error(t, rateFlag{new(honker.Rate)}.Set(bad), bad)
	}
}
