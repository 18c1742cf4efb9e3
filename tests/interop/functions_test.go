package interop_test

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/testkit"
)

// call is a call of a SQL function.
type call struct {
	name string
	args []any
}

func (c call) query() string {
	marks := strings.TrimSuffix(strings.Repeat("?, ", len(c.args)), ", ")
	return fmt.Sprintf("SELECT %s(%s)", c.name, marks)
}

// oneOf returns a random element of values.
func oneOf[T any](r *rand.Rand, values ...T) T { return values[r.IntN(len(values))] }

// generators draw the arguments of each function from small sets, so that calls affect each other.
// They avoid the differences listed in docs/honker-compat.md: expired locks, jobs that expire while
// claimed, the time at which a job without attempts left can be claimed, schedules registered
// twice, the firing order of several schedules, and the list of schedules, which 0.2.4 returns
// without the attempts.
var generators = map[string]func(r *rand.Rand) []any{
	"notify": func(r *rand.Rand) []any { return []any{oneOf(r, "a", "b"), payload(r)} },
	"honker_enqueue": func(r *rand.Rand) []any {
		name, expires := queue(r), any(nil)
		if r.IntN(3) == 0 {
			name, expires = "expire", oneOf(r, 10, 1000)
		}
		return []any{name, payload(r), oneOf[any](r, nil, nil, 0, 1_000_000_000, int64(5_000_000_000)), oneOf[any](r, nil, nil, nil, -100, 0, 100),
			oneOf(r, -1, 0, 0, 7), oneOf(r, 1, 3, 3), expires}
	},
	"honker_claim_batch":         func(r *rand.Rand) []any { return []any{queue(r), worker(r), oneOf(r, 0, 1, 2, 5), oneOf(r, 10, 300)} },
	"honker_ack":                 func(r *rand.Rand) []any { return []any{job(r), worker(r)} },
	"honker_ack_batch":           func(r *rand.Rand) []any { return []any{fmt.Sprintf("[%d, %d]", job(r), job(r)), worker(r)} },
	"honker_retry":               func(r *rand.Rand) []any { return []any{job(r), worker(r), oneOf(r, 0, 60), oneOf(r, "", "näh")} },
	"honker_fail":                func(r *rand.Rand) []any { return []any{job(r), worker(r), oneOf(r, "", "no\n")} },
	"honker_heartbeat":           func(r *rand.Rand) []any { return []any{job(r), worker(r), oneOf(r, 5, 500)} },
	"honker_cancel":              func(r *rand.Rand) []any { return []any{job(r)} },
	"honker_get_job":             func(r *rand.Rand) []any { return []any{job(r)} },
	"honker_sweep_expired":       func(r *rand.Rand) []any { return []any{oneOf(r, queue(r), "expire")} },
	"honker_queue_next_claim_at": func(*rand.Rand) []any { return []any{"expire"} },
	"honker_result_save":         func(r *rand.Rand) []any { return []any{job(r), payload(r), oneOf(r, 0, 20, 1000)} },
	"honker_result_get":          func(r *rand.Rand) []any { return []any{job(r)} },
	"honker_result_sweep":        func(*rand.Rand) []any { return nil },
	"honker_stream_publish":      func(r *rand.Rand) []any { return []any{queue(r), oneOf[any](r, nil, "k", ""), payload(r)} },
	"honker_stream_read_since":   func(r *rand.Rand) []any { return []any{queue(r), r.IntN(10), oneOf(r, -1, 0, 2, 100)} },
	"honker_stream_save_offset":  func(r *rand.Rand) []any { return []any{worker(r), queue(r), r.IntN(10)} },
	"honker_stream_get_offset":   func(r *rand.Rand) []any { return []any{worker(r), queue(r)} },
	"honker_lock_acquire":        func(r *rand.Rand) []any { return []any{queue(r), worker(r), oneOf(r, 5000, 9000)} },
	"honker_lock_release":        func(r *rand.Rand) []any { return []any{queue(r), worker(r)} },
	"honker_rate_limit_try":      func(r *rand.Rand) []any { return []any{queue(r), oneOf(r, 1, 3), oneOf(r, 3600, 86400)} },
	"honker_rate_limit_sweep":    func(r *rand.Rand) []any { return []any{oneOf(r, -1_000_000, 0, 10)} },
	"honker_scheduler_register": func(r *rand.Rand) []any {
		return []any{"s", queue(r), oneOf(r, "* * * * *", "@every 7s", "*/5 0 * * 1", "no cron"), payload(r), oneOf(r, 0, 3), oneOf[any](r, nil, 60)}
	},
	"honker_scheduler_tick":    func(r *rand.Rand) []any { return []any{time.Now().Unix() + oneOf[int64](r, 0, 5, 130)} },
	"honker_scheduler_soonest": func(*rand.Rand) []any { return nil },
	"honker_cron_next_after": func(r *rand.Rand) []any {
		return []any{oneOf(r, "* * * * *", "@every 90m", "0 12 29 2 *", "1-59/7 */3 1,15 * *", "61 * * * *", ""), r.Int64N(4_000_000_000)}
	},
}

func queue(r *rand.Rand) string   { return oneOf(r, "a", "a", "b", "ü'") }
func worker(r *rand.Rand) string  { return oneOf(r, "w", "w", "v") }
func payload(r *rand.Rand) string { return oneOf(r, "1", `{"b": 1, "a": "ü"}`, "no JSON", "") }
func job(r *rand.Rand) int        { return 1 + r.IntN(12) }

// timePasses moves all times in a file 40 seconds into the past, except those of claims. The
// libraries treat lapsed claims differently: here the next claim first sets them back to pending,
// and the package claims them directly.
const timePasses = `UPDATE _honker_live SET run_at = run_at - 40, expires_at = expires_at - 40;
UPDATE _honker_results SET expires_at = expires_at - 40;
UPDATE _honker_scheduler_tasks SET next_fire_at = next_fire_at - 40`

// ask calls the function in this process. All errors are equal, since their texts differ.
func ask(pool *sql.DB, c call) string {
	var v any
	if err := pool.QueryRow(c.query(), c.args...).Scan(&v); err != nil {
		return "error"
	}
	return text(v)
}

// text formats a value from either process with its type. The keys of JSON objects are sorted: the
// Python package orders them by column, while this library and honker's SQLite extension order them
// by name.
func text(v any) string {
	switch v := v.(type) {
	case int64:
		return fmt.Sprint("INTEGER ", v)
	case json.Number:
		return "INTEGER " + v.String()
	case string:
		return "TEXT " + sortedKeys(v)
	}
	return fmt.Sprintf("%T %[1]v", v)
}

// sortedKeys sorts the keys of a JSON object or of an array of objects. It returns any other text
// unchanged.
func sortedKeys(text string) string {
	in := json.NewDecoder(strings.NewReader(text))
	in.UseNumber()
	var v any
	if err := in.Decode(&v); err != nil || !strings.ContainsAny(text[:1], "[{") {
		return text
	}
	sorted, err := json.Marshal(v)
	if err != nil {
		return text
	}
	return string(sorted)
}

// sortedJobs sorts the jobs in the result of a claim.
func sortedJobs(text string) string {
	jobs := strings.SplitAfter(strings.Trim(text, "TEX []"), "},")
	for i := range jobs {
		jobs[i] = strings.TrimSuffix(jobs[i], ",")
	}
	slices.Sort(jobs)
	return strings.Join(jobs, ",")
}

// askPeer calls the function in Python.
func askPeer(t *testing.T, p *peer, c call) string {
	t.Helper()
	args := c.args
	if args == nil {
		args = []any{}
	}
	a := p.ask("sql", c.query(), args)
	if a.Error != "" {
		return "error"
	}
	return text(a.Value.([]any)[0].([]any)[0])
}

// play runs the call sequence of a seed on two files, with a different library on each. It returns
// false if the clock moved to the next second between the two calls, because the results are not
// comparable then.
func play(t *testing.T, seed, of uint64) bool {
	t.Helper()
	_, ours := testkit.OpenShared(t)
	path, theirs := testkit.OpenShared(t)
	p := readyPeer(t, path, "answer")
	defer p.End()
	names := slices.Sorted(maps.Keys(generators))
	for r, step := testkit.Rand(seed, of), 0; step < 80; step++ {
		c := call{name: names[r.IntN(len(names))]}
		c.args = generators[c.name](r)
		began := time.Now().Unix()
		if c.name == "honker_scheduler_register" {
			gone := call{"honker_scheduler_unregister", []any{"s"}}
			require.Equal(t, askPeer(t, p, gone), ask(ours.SQL(), gone))
		}
		want, got := askPeer(t, p, c), ask(ours.SQL(), c)
		if time.Now().Unix() != began {
			return false
		}
		switch {
		case c.name == "notify" && got != "error":
			want = got // ids differ, because the package also sends a message for each enqueue
		case c.name == "honker_claim_batch":
			// This library returns jobs in claim order, the package in SQLite's update order.
			want, got = sortedJobs(want), sortedJobs(got)
		}
		require.Equal(t, want, got, "step %d: %s %v", step, c.query(), c.args)
		if r.IntN(20) == 0 {
			for _, statement := range strings.Split(timePasses, ";\n") {
				testkit.Exec(t, ours, statement)
				testkit.Exec(t, theirs, statement)
			}
		}
	}
	require.Equal(t, rows(t, theirs), rows(t, ours))
	return true
}

// rows returns all rows that both libraries write. It leaves out the tables that only this library
// has, and the ids of messages, because the package also sends messages to wake its workers.
func rows(t *testing.T, db *honker.DB) []string {
	t.Helper()
	messages, err := testkit.Rows(db.SQL(), `SELECT channel, payload FROM _honker_notifications WHERE channel NOT LIKE 'honker:%' ORDER BY id`)
	require.NoError(t, err)
	return append(messages, slices.DeleteFunc(testkit.Dump(t, db.SQL()), func(row string) bool {
		return strings.HasPrefix(row, "_honkerx_") || strings.HasPrefix(row, "_honker_notifications|") ||
			strings.HasPrefix(row, "sqlite_sequence|_honker_notifications|")
	})...)
}

// TestInterop_Functions_Random runs random sequences of SQL functions with both libraries. The
// results and the rows in the file must be equal.
func TestInterop_Functions_Random(t *testing.T) {
	sequences := uint64(20)
	if testing.Short() {
		sequences = 5
	}
	seed := testkit.Seed(t)
	for of := range sequences {
		t.Run(fmt.Sprint(of), func(t *testing.T) {
			for !play(t, seed, of) {
				t.Log("the clock moved to the next second: repeating")
			}
		})
	}
}
