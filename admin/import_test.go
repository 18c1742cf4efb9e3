package admin_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
	"github.com/honker-go/honker/observe"
)

// exported returns the lines exported for the jobs that f selects.
func exported(t testing.TB, db *honker.DB, f admin.JobFilter) string {
	t.Helper()
	var b bytes.Buffer
	n, err := admin.ExportJobs(context.Background(), db, f, &b)
	require.NoError(t, err)
	require.EqualValues(t, n, strings.Count(b.String(), "\n"))
	return b.String()
}

func imported(t testing.TB, db *honker.DB, lines string, opts *admin.ImportOptions) *admin.Report {
	t.Helper()
	r, err := admin.ImportJobs(context.Background(), db, strings.NewReader(lines), opts)
	require.NoError(t, err)
	require.NoError(t, db.Check(context.Background()))
	return r
}

const payloads = `SELECT payload FROM _honker_live ORDER BY id`

// odd lists payloads that a careless encoding would change.
var odd = []string{
	`{"b": 1.0, "a": 12345678901234567890, "a": "<&>"}`, ` 1 `, "{\n}", "\r", "no JSON", "\"\u2028\"", "", "\xff\xfe", `"\ud800"`, "null", "1e1000",
}

// Exporting and importing preserves payloads byte for byte. The imported jobs are new and waiting.
func TestExportJobs_RoundTrip(t *testing.T) {
	_, db, _, _ := open(t)
	odd := odd
	if !testkit.AsFile("a name, or a payload of a Codec, with a zero byte or invalid UTF-8") {
		odd = slices.DeleteFunc(slices.Clone(odd), func(p string) bool { return !utf8.ValidString(p) })
	}
	for i, p := range odd {
		testkit.Exec(t, db, testkit.Either(`INSERT INTO _honker_dead (id, queue, payload, priority, attempts, max_attempts, last_error, died_at)
VALUES ($1, 'jobs', $2, -2, 3, 3, $3, 5)`, `INSERT INTO dead (id, queue, payload, priority, attempts, max_attempts, last_error, run_at, created_at, died_at)
VALUES ($1, 'jobs', $2, -2, 3, 3, $3, 'epoch', 'epoch', 'epoch')`), i+1, p, "a \"b\"\nc")
	}
	lines := exported(t, db, admin.JobFilter{Phases: []honker.Phase{honker.PhaseDead}})

	_, other, _, _ := open(t)
	testkit.StoreLive(t, other, 1, func(int64) testkit.StoredJob { return testkit.StoredJob{} })
	r := imported(t, other, lines, nil)
	require.Equal(t, &admin.Report{Matched: int64(len(odd)), Changed: int64(len(odd)), Audit: 1}, r)
	testkit.Exec(t, other, `DELETE FROM _honker_live WHERE id = 1`)
	require.Equal(t, rows(t, db, `SELECT payload FROM _honker_dead ORDER BY id`), rows(t, other, payloads))
	require.Equal(t, []string{"jobs|" + testkit.Either("pending", "0") + "|-2|0|3"}, rows(t, other, `SELECT DISTINCT queue, state, priority, attempts, max_attempts FROM _honker_live`))
	require.Equal(t, []string{"2"}, rows(t, other, `SELECT min(id) FROM _honker_live`), "ids of their own")
}

// A line has the fields listed in the guide and omits fields that a job doesn't have.
func TestExportJobs_Fields(t *testing.T) {
	_, db, q, _ := open(t)
	testkit.StoreDead(t, db, 1, func(int64) testkit.StoredJob {
		return testkit.StoredJob{ID: 7, Queue: "mails", Payload: `{"to": "ada"}`, Priority: 1, RunAt: 60, Attempts: 2, Error: "no", CreatedAt: 30, DiedAt: 90}
	})
	require.Equal(t, `{"id":7,"queue":"mails","state":"dead","priority":1,"attempts":2,"max_attempts":3,"last_error":"no",`+
		`"created_at":"1970-01-01T00:00:30Z","run_at":"1970-01-01T00:01:00Z","died_at":"1970-01-01T00:01:30Z","payload":{"to": "ada"}}`+"\n", exported(t, db, all))

	require.NoError(t, q.SetRetention(t.Context(), honker.QueueRetention{Done: honker.Retention{MaxCount: 9}}))
	testkit.Enqueue(t, q, 1, honker.Unique("k", nil), honker.Key("ann"), honker.ExpiresIn(time.Hour))
	require.NoError(t, testkit.ClaimOneAs(t, q, "anna").Ack(t.Context()))
	testkit.Enqueue(t, q, 2)
	testkit.ClaimOneAs(t, q, "bob")
	has := func(line string, fields ...string) {
		t.Helper()
		var m map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &m))
		for _, f := range fields {
			require.Contains(t, m, f)
		}
		require.Len(t, m, len(fields), line)
	}
	lines := strings.Split(exported(t, db, admin.JobFilter{Queues: []string{q.Name()}}), "\n")
	has(lines[0], "id", "queue", "state", "attempts", "max_attempts", "worker_id", "unique", "key", "created_at", "run_at", "expires_at", "done_at", "payload")
	has(lines[1], "id", "queue", "state", "attempts", "max_attempts", "worker_id", "created_at", "run_at", "payload")
}

// Exported and discarded dead jobs can be imported into the same file. Jobs that are still there are
// skipped.
func TestImportJobs_SameFile(t *testing.T) {
	ctx, db, q, _ := open(t)
	first, second := bury(t, q, 1, "no"), bury(t, q, 2, "no")
	lines := exported(t, db, all)
	_, err := admin.Discard(ctx, db, admin.JobFilter{IDs: []int64{first}}, nil)
	require.NoError(t, err)
	r := imported(t, db, lines, nil)
	require.Equal(t, &admin.Report{Matched: 2, Changed: 1, Audit: 2, SkippedTotal: 1, Skipped: []admin.Skip{{ID: second, Why: "line 2: the job is in this file, dead"}}}, r)
	require.Equal(t, 1, testkit.ClaimOne(t, q).Args)

	_, err = admin.Requeue(ctx, db, all, nil)
	require.NoError(t, err)
	require.Equal(t, "line 2: the job is in this file, live", imported(t, db, lines, nil).Skipped[0].Why)
}

// A report counts all skipped lines and lists the first of them.
func TestImportJobs_SkippedTotal(t *testing.T) {
	_, db, _, _ := open(t)
	const lines = 2500 // requires more than one transaction
	r := imported(t, db, strings.Repeat(`{"queue": "mails", "unique": "k", "payload": 1}`+"\n", lines), nil)
	require.Equal(t, int64(lines), r.Matched)
	require.Equal(t, int64(1), r.Changed)
	require.Equal(t, int64(lines-1), r.SkippedTotal)
	require.Len(t, r.Skipped, 100)
	require.Contains(t, r.Skipped[99].Why, "line 101: ")
}

// A done job is not imported. A delayed job keeps its time. A job with a unique key takes the key, or is
// skipped if the key is taken.
func TestImportJobs_Kinds(t *testing.T) {
	_, db, q, _ := open(t)
	require.NoError(t, q.SetRetention(t.Context(), honker.QueueRetention{Done: honker.Retention{MaxCount: 9}}))
	done := testkit.Enqueue(t, q, 1)
	require.NoError(t, testkit.ClaimOne(t, q).Ack(t.Context()))
	later := time.Now().Add(time.Hour).Truncate(time.Second)
	testkit.Enqueue(t, q, 2, honker.RunAt(later), honker.ExpiresIn(2*time.Hour), honker.Key("ann"))
	taken := testkit.Enqueue(t, q, 3, honker.Unique("taken", nil))
	testkit.Enqueue(t, q, 4, honker.Unique("free", nil), honker.MaxAttempts(7), honker.Key("bob"))
	lines := exported(t, db, admin.JobFilter{})

	ctx, other, q2, _ := open(t)
	require.Equal(t, &admin.Report{Matched: 4}, imported(t, other, lines, &admin.ImportOptions{DryRun: true}))
	require.Empty(t, rows(t, other, `SELECT id FROM _honker_live`))
	testkit.Enqueue(t, q2, 0)
	by := testkit.Enqueue(t, q2, 9, honker.Unique("taken", nil))
	r := imported(t, other, lines, nil)
	require.Equal(t, []admin.Skip{{ID: done, Why: "line 1: it was done"},
		{ID: taken, Why: fmt.Sprintf(`line 3: unique key "taken" is taken by job %d`, by)}}, r.Skipped)
	require.EqualValues(t, 2, r.Changed)
	waits, err := other.Job(ctx, by+1)
	require.NoError(t, err)
	require.Equal(t, later, waits.RunAt)
	require.Equal(t, []string{"2", "ann"}, []string{string(waits.Payload), waits.Key})
	require.False(t, waits.ExpiresAt.IsZero())
	unique, err := other.Job(ctx, by+2)
	require.NoError(t, err)
	require.Equal(t, []string{"4", "bob", "free"}, []string{string(unique.Payload), unique.Key, unique.Unique})
	require.Equal(t, 7, unique.MaxAttempts)
}

// Options change the queue, the time and the attempts. Workers and the observer are notified of the jobs.
func TestImportJobs_Options(t *testing.T) {
	var told []observe.Enqueued
	db := honkertest.Open(t, &honker.Options{Observer: &observe.Observer{Enqueued: func(e observe.Enqueued) { told = append(told, e) }}})
	soon := time.Now()
	imported(t, db, "{\"payload\":1}\n\n  {\"queue\":\"x\",\"state\":\"dead\",\"payload\":2,\"max_attempts\":9}", &admin.ImportOptions{To: "b", Delay: time.Hour, Attempts: 4})
	require.Equal(t, []string{"b|1|4", "b|2|4"}, rows(t, db, `SELECT queue, payload, max_attempts FROM _honker_live ORDER BY id`))
	for _, job := range []int64{1, 2} {
		info, err := db.Job(t.Context(), job)
		require.NoError(t, err)
		require.False(t, info.RunAt.Before(soon.Add(time.Hour).Truncate(time.Second)))
	}
	require.Equal(t, []observe.Enqueued{{Queue: "b", IDs: []int64{1, 2}}}, told)
	imported(t, db, `{"queue":"c","payload":3}`, nil)
	require.Equal(t, []string{"3|25"}, rows(t, db, `SELECT payload, max_attempts FROM _honker_live WHERE queue = 'c'`))
}

// The error for an invalid line contains the line number, and nothing from its transaction is committed.
// Skip continues from the line named in the error.
func TestImportJobs_BadLine(t *testing.T) {
	for why, bad := range map[string]string{
		"unexpected EOF":                                 `{"queue":"a"`,
		"invalid character":                              `queue`,
		"unknown field":                                  `{"queue":"a","payload":1,"paylod":2}`,
		"more than one JSON value":                       `{"queue":"a","payload":1} {}`,
		"the queue name is empty":                        `{"payload":1}`,
		"must be set, but 0 are":                         `{"queue":"a"}`,
		"must be set, but 2 are":                         `{"queue":"a","payload":1,"payload_text":"1"}`,
		"the key contains NUL":                           `{"queue":"a","payload":1,"key":"\u0000"}`,
		"illegal base64":                                 `{"queue":"a","payload_base64":"!"}`,
		"but is -1":                                      `{"queue":"a","payload":1,"max_attempts":-1}`,
		"cannot unmarshal string":                        `{"queue":"a","payload":1,"priority":"high"}`,
		"payload has 1048577 bytes":                      `{"queue":"a","payload_text":"` + strings.Repeat("x", 1<<20+1) + `"}`,
		"more than":                                      strings.Repeat("x", 7<<20),
		"has 1025 bytes; the maximum is 1024":            `{"queue":"` + strings.Repeat("q", 1025) + `","payload":1}`,
		"the unique key has 1025 bytes; the maximum is ": `{"queue":"a","payload":1,"unique":"` + strings.Repeat("q", 1025) + `"}`,
	} {
		ctx, db, _, _ := open(t)
		before := testkit.Dump(t, db.SQL())
		r, err := admin.ImportJobs(ctx, db, strings.NewReader("{\"queue\":\"a\",\"payload\":1}\n\n"+bad+"\n"), nil)
		require.ErrorIs(t, err, honker.ErrInvalid, why)
		require.ErrorContains(t, err, why)
		require.ErrorContains(t, err, "line 3: ")
		require.ErrorContains(t, err, "; nothing was imported")
		require.Zero(t, *r)
		require.Equal(t, before, testkit.Dump(t, db.SQL()))
	}

	ctx, db, _, _ := open(t)
	var lines strings.Builder
	for n := range 3000 {
		fmt.Fprintf(&lines, "{\"queue\":\"a\",\"payload\":%d}\n", n+1)
	}
	mended := lines.String()
	spoilt := strings.Replace(mended, `:2500}`, `:2500`, 1)
	r, err := admin.ImportJobs(ctx, db, strings.NewReader(spoilt), nil)
	require.ErrorContains(t, err, "line 2500: ")
	require.ErrorContains(t, err, fmt.Sprintf("; lines up to %d were imported", r.Changed))
	require.Less(t, r.Changed, int64(2500))
	require.Positive(t, r.Changed)
	more := imported(t, db, mended, &admin.ImportOptions{Skip: r.Changed})
	require.EqualValues(t, 3000, r.Changed+more.Changed)
	require.Equal(t, []string{"3000|3000"}, rows(t, db, `SELECT count(*), count(DISTINCT payload) FROM _honker_live`))
}

// Errors from the reader or writer, and the end of ctx, stop the import or export. The error says how far
// it got.
func TestImportJobs_Ends(t *testing.T) {
	ctx, db, q, _ := open(t)
	broken := errors.New("broken")
	_, err := admin.ImportJobs(ctx, db, io.MultiReader(strings.NewReader("{\"queue\":\"a\",\"payload\":1}\n"), iotest.ErrReader(broken)), nil)
	require.ErrorIs(t, err, broken)
	require.ErrorContains(t, err, "line 2: ")
	over, cancel := context.WithCancel(ctx)
	cancel()
	_, err = admin.ImportJobs(over, db, strings.NewReader("{}"), nil)
	require.ErrorIs(t, err, context.Canceled)
	require.Empty(t, rows(t, db, `SELECT id FROM _honker_live`))

	bury(t, q, 1, "no")
	_, err = admin.ExportJobs(over, db, all, io.Discard)
	require.ErrorIs(t, err, context.Canceled)
	_, err = admin.ExportJobs(ctx, db, all, iotest.TruncateWriter(failing{}, 1<<20))
	require.ErrorIs(t, err, errFull)

	var none context.Context
	_, err = admin.ImportJobs(none, db, strings.NewReader(""), nil)
	require.ErrorIs(t, err, honker.ErrInvalid)
	for _, call := range []func() error{
		func() error { _, err := admin.ImportJobs(ctx, nil, strings.NewReader(""), nil); return err },
		func() error { _, err := admin.ImportJobs(ctx, db, nil, nil); return err },
		func() error { _, err := admin.ExportJobs(ctx, db, all, nil); return err },
		func() error { _, err := admin.ExportJobs(ctx, nil, all, io.Discard); return err },
		func() error { return importWith(ctx, db, admin.ImportOptions{Skip: -1}) },
		func() error { return importWith(ctx, db, admin.ImportOptions{Delay: -1}) },
		func() error { return importWith(ctx, db, admin.ImportOptions{Attempts: -1}) },
		func() error { return importWith(ctx, db, admin.ImportOptions{To: "\x00"}) },
	} {
		require.ErrorIs(t, call(), honker.ErrInvalid)
	}
}

func importWith(ctx context.Context, db *honker.DB, o admin.ImportOptions) error {
	_, err := admin.ImportJobs(ctx, db, strings.NewReader(""), &o)
	return err
}

var errFull = errors.New("disk is full")

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errFull }

// Imported jobs can be exported and imported again unchanged.
func TestImportJobs_Again(t *testing.T) {
	for _, lines := range []string{
		`{"queue":"a","payload":{"n": 1}}` + "\n" + `{"queue":"b","state":"dead","payload_text":"x","unique":"k"}`,
		`{"queue":"a","payload_base64":"/w==","run_at":"2030-01-01T00:00:00Z","expires_at":"0001-01-01T00:00:01Z","priority":-9223372036854775808}`,
		"\n\n" + `{"queue":"a","payload":null,"run_at":"9999-12-31T23:59:59Z"}`,
	} {
		if strings.Contains(lines, "/w==") && !testkit.AsFile("a name, or a payload of a Codec, with a zero byte or invalid UTF-8") {
			lines = strings.Replace(lines, "/w==", "eA==", 1)
		}
		_, db, _, _ := open(t)
		r := imported(t, db, lines, nil)
		_, other, _, _ := open(t)
		require.Equal(t, r, imported(t, other, exported(t, db, all), nil))
		const jobs = `SELECT queue, payload, priority, max_attempts FROM _honker_live ORDER BY id`
		require.Equal(t, rows(t, db, jobs), rows(t, other, jobs))
	}
}

// Headers are imported with a line. The error for invalid headers contains the line number.
func TestImportJobs_Headers(t *testing.T) {
	_, db, _, _ := open(t)
	q := honker.NewQueue[int](db, "jobs", nil)
	h := map[string]string{"tenant": "a \"b\"", "trace.id": "17"}
	testkit.Enqueue(t, q, 1, honker.Headers(h), honker.Key("k"))
	testkit.Enqueue(t, q, 2)
	lines := exported(t, db, admin.JobFilter{Header: map[string]string{"trace.id": "17"}})
	require.Contains(t, lines, `"headers":{"tenant":"a \"b\"","trace.id":"17"}`)

	_, other, _, _ := open(t)
	imported(t, other, lines, nil)
	job, err := other.Job(t.Context(), 1)
	require.NoError(t, err)
	require.Equal(t, h, job.Headers)
	require.Equal(t, "k", job.Key)
	r, err := admin.ImportJobs(t.Context(), other, strings.NewReader(`{"queue":"a","payload":1,"headers":{"":"x"}}`), nil)
	require.ErrorIs(t, err, honker.ErrInvalid)
	require.ErrorContains(t, err, "line 1: ")
	require.Zero(t, r.Changed)
}
