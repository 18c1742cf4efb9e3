package sqlfunc

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite"
	"github.com/honker-go/honker/internal/sqlite/store/jobs"
	"github.com/honker-go/honker/internal/sqlite/store/schema"
	"github.com/honker-go/honker/internal/sqlite/store/streams"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Strings are encoded the way honker encodes them.
func TestSQLFunc_Strings(t *testing.T) {
	for text, want := range map[string]string{
		"":                   `""`,
		"plain":              `"plain"`,
		"\"\\\b\f\n\r\t":     `"\"\\\b\f\n\r\t"`,
		"\x00\x01\x0b\x1f":   `"\u0000\u0001\u000b\u001f"`,
		"\x7f/<>&'":          "\"\x7f/<>&'\"",
		"ä\u2028\u2029😀":     "\"ä\u2028\u2029😀\"",
		"\nfirst and last\n": `"\nfirst and last\n"`,
	} {
		require.Equal(t, want, string(appendString(nil, text)))
	}
}

// Strings survive a round trip.
func FuzzSQLFunc_Strings(f *testing.F) {
	f.Add("a\"\\\n\x00\u2028é")
	f.Fuzz(func(t *testing.T, text string) {
		text = strings.ToValidUTF8(text, "?")
		var got string
		require.NoError(t, json.Unmarshal(appendString(nil, text), &got))
		require.Equal(t, text, got)
	})
}

// Keys are in alphabetical order.
func TestSQLFunc_KeyOrder(t *testing.T) {
	for _, members := range [][]member{claimed(&row.Job{}, 0), described(jobs.Stored{}), published(streams.TopicEvent{})} {
		keys := make([]string, len(members))
		for i, m := range members {
			keys[i] = m.key
		}
		require.True(t, slices.IsSorted(keys), "%v", keys)
		require.True(t, json.Valid(appendObject(nil, members)))
	}
	require.Equal(t, "[]", array(nil, described))
}

// Signatures can be parsed, and are unique.
func TestSQLFunc_Signatures(t *testing.T) {
	require.Equal(t, []param{{"topic", "Text", false}, {"key", "Text", true}, {"n", "Integer", false}}, parse("topic TEXT, key TEXT?, n INTEGER"))
	require.Empty(t, parse(""))
	require.Panics(t, func() { parse("topic BLOB") })
	seen := map[string]bool{}
	for _, f := range Functions("") {
		form := fmt.Sprintf("%s/%d", f.Name, f.Args)
		require.False(t, seen[form], form)
		seen[form] = true
		require.True(t, f.Name == "notify" || strings.HasPrefix(f.Name, "honker_") || f.Name == "honkerx_enqueue", f.Name)
	}
	require.Len(t, seen, 37)
}

// Times saturate at a column's limits.
func TestSQLFunc_TimeSums(t *testing.T) {
	c := call{time: time.Unix(100, 0)}
	for seconds, want := range map[int64]int64{0: 100, -200: -100, math.MaxInt64: math.MaxInt64, math.MaxInt64 - 100: math.MaxInt64, math.MinInt64: math.MinInt64 + 100} {
		require.Equal(t, want, c.in(seconds))
	}
}

// A REAL with an integral value is accepted as INTEGER, and any other REAL is rejected.
func TestSQLFunc_WholeReals(t *testing.T) {
	params := parse("queue TEXT, n INTEGER, m INTEGER?")
	for real, want := range map[float64]int64{0: 0, math.Copysign(0, -1): 0, 3: 3, -7: -7, 1 << 53: 1 << 53, math.MinInt64: math.MinInt64} {
		args := []driver.Value{"q", real, real}
		require.NoError(t, accept(params, args))
		require.Equal(t, []driver.Value{"q", want, want}, args)
	}
	for _, real := range []float64{1.5, -0.1, 1 << 63, -math.MaxFloat64, math.Inf(1), math.Inf(-1), math.NaN()} {
		require.ErrorContains(t, accept(params, []driver.Value{"q", 1.0, real}), "at index 2 (m)", "%v", real)
	}
	require.EqualError(t, accept(params, []driver.Value{"q", 1.5, nil}), "1.5 is not a whole number at index 1 (n)")
	require.EqualError(t, accept(params, []driver.Value{"q", 1e300, nil}), "1e+300 is out of range at index 1 (n)")
	require.EqualError(t, accept(params, []driver.Value{1.0, 1.0, nil}), "invalid function parameter type Real at index 0 (queue)")
	require.NoError(t, accept(params, []driver.Value{"q", 1.0, nil}))
}

// An expires of 0 is stored as 0 rather than NULL: the job expires when the current second is over.
// Only NULL means never.
func TestSQLFunc_ScheduleExpires(t *testing.T) {
	pool := openPool(t)
	for i, c := range []struct{ given, stored, job string }{
		{"NULL", "", ""}, {"0", "0", "0"}, {"0.0", "0", "0"}, {"30", "30", "30"}, {"-1", "-1", "-1"}, {"9223372036854775807", "9223372036854775807", "late"},
	} {
		for _, call := range []string{`honker_scheduler_register('s', 'q', '@every 1h', '1', 0, ` + c.given + `)`,
			`honker_scheduler_update('s', NULL, NULL, NULL, ` + c.given + `, 1)`} {
			_, err := pool.Exec(`SELECT ` + call)
			require.NoError(t, err, call)
			var stored, listed, job string
			require.NoError(t, pool.QueryRow(`SELECT coalesce(expires_s, ''), coalesce(honker_scheduler_list() ->> '$[0].expires_s', '')
				FROM _honker_scheduler_tasks`).Scan(&stored, &listed))
			require.Equal(t, []string{c.stored, c.stored}, []string{stored, listed}, "%d: %s", i, call)
			for _, statement := range []string{`DELETE FROM _honker_live`, `UPDATE _honker_scheduler_tasks SET next_fire_at = 4000000000`,
				`SELECT honker_scheduler_tick(4000000000)`} {
				_, err := pool.Exec(statement)
				require.NoError(t, err)
			}
			require.NoError(t, pool.QueryRow(`SELECT coalesce(iif(expires_at = 9223372036854775807, 'late', expires_at - created_at), '') FROM _honker_live`).Scan(&job))
			require.Equal(t, c.job, job, call)
		}
	}
}

// honker_get_job and honker_claim_batch return times as stored, even if they are out of the range of time.Time.
func TestSQLFunc_TimesOutOfRange(t *testing.T) {
	pool := openPool(t)
	for _, at := range []int64{math.MinInt64, -62135596800, -1, 253402300800, math.MaxInt64} {
		_, err := pool.Exec(`INSERT OR REPLACE INTO _honker_live (id, queue, payload, state, run_at, worker_id, claim_expires_at, created_at, expires_at)
			VALUES (1, 'q', '1', 'processing', ?1, 'w', ?1, ?1, ?1)`, at)
		require.NoError(t, err)
		var text string
		require.NoError(t, pool.QueryRow(`SELECT honker_get_job(1)`).Scan(&text))
		var job struct {
			RunAt          int64 `json:"run_at"`
			ClaimExpiresAt int64 `json:"claim_expires_at"`
			CreatedAt      int64 `json:"created_at"`
			ExpiresAt      int64 `json:"expires_at"`
		}
		require.NoError(t, json.Unmarshal([]byte(text), &job))
		require.Equal(t, [4]int64{at, at, at, at}, [4]int64{job.RunAt, job.ClaimExpiresAt, job.CreatedAt, job.ExpiresAt})
	}
	_, err := pool.Exec(`UPDATE _honker_live SET state = 'pending', expires_at = NULL, run_at = 0`)
	require.NoError(t, err)
	var expires int64
	require.NoError(t, pool.QueryRow(`SELECT honker_claim_batch('q', 'w', 1, 9223372036854775807) ->> '$[0].claim_expires_at'`).Scan(&expires))
	require.Equal(t, int64(math.MaxInt64), expires)
}

// allFunctions returns the functions, with the DDL of the schema file.
func allFunctions(t *testing.T) []sqlite.Function {
	t.Helper()
	return Functions(schema.Schema)
}

// openPool returns a pool with the functions, on a file created by honker_bootstrap.
func openPool(t *testing.T) *sql.DB {
	t.Helper()
	connector, err := sqlite.NewConnector(filepath.Join(t.TempDir(), "x.db"),
		sqlite.Config{BusyTimeout: time.Second, AnyFilesystem: true, Functions: sqlite.NewFunctions(allFunctions(t))})
	require.NoError(t, err)
	pool := sql.OpenDB(connector)
	t.Cleanup(func() { require.NoError(t, pool.Close()) })
	_, err = pool.Exec(`SELECT honker_bootstrap()`)
	require.NoError(t, err, "on an empty file too")
	return pool
}

// Each function declared as read-only works on a read-only connection.
func TestSQLFunc_Effects(t *testing.T) {
	pool := openPool(t)
	conn, err := pool.Conn(context.Background())
	require.NoError(t, err)
	defer conn.Close()
	_, err = conn.ExecContext(context.Background(), `PRAGMA query_only = ON`)
	require.NoError(t, err)
	for _, f := range allFunctions(t) {
		if f.Effect == sqlite.Reads {
			_, err := conn.ExecContext(context.Background(), `SELECT `+f.Name+`(`+anyArgs(f.Name)+`)`)
			require.NoError(t, err, f.Name)
		}
	}
}

func anyArgs(name string) string {
	i := slices.IndexFunc(table, func(f function) bool { return f.name == name })
	var args []string
	for _, p := range parse(table[i].params) {
		args = append(args, map[string]string{"Text": `'x'`, "Integer": `1`}[p.class])
	}
	return strings.Join(args, ", ")
}

// For every parameter of every function, an argument of the wrong type or with an invalid value returns ErrInvalid,
// and nothing is changed.
func TestSQLFunc_BadArguments(t *testing.T) {
	pool := openPool(t)
	good := map[string]string{"Text": "'1'", "Integer": "1"}
	bad := map[string][]string{"Text": {"1", "1.5", "x'00'", "CAST(x'ff' AS TEXT)"}, "Integer": {"'1'", "x'00'", "1.5", "1e300"}}
	calls := []string{
		"honker_lock_renew('l', 'o', -1)", "honker_rate_limit_try('r', 0, 1)", "honker_rate_limit_try('r', 1, 0)",
		"honker_cron_next_after('never', 1)", "honker_scheduler_register('s', 'q', '61 * * * *', '1', 0, NULL)",
		"honker_scheduler_update('there', 'x', NULL, NULL, NULL, 0)", "honker_ack_batch('[1', 'w')", "honker_ack_batch('', 'w')",
	}
	for _, f := range table {
		params := parse(f.params)
		for i, p := range params {
			args := make([]string, len(params))
			for j, other := range params {
				args[j] = good[other.class]
			}
			values := bad[p.class]
			if !p.nullable {
				values = append(slices.Clone(values), "NULL")
			}
			for _, args[i] = range values {
				calls = append(calls, fmt.Sprintf("%s(%s)", f.name, strings.Join(args, ", ")))
			}
		}
	}
	_, err := pool.Exec(`SELECT honker_scheduler_register('there', 'q', '0 * * * *', '1', 0, NULL)`)
	require.NoError(t, err)
	for _, call := range calls {
		var x any
		err := pool.QueryRow(`SELECT ` + call).Scan(&x)
		require.ErrorIs(t, err, engine.ErrInvalid, call)
	}
	var r int
	require.NoError(t, pool.QueryRow(`SELECT (SELECT count(*) FROM _honker_live) + (SELECT count(*) FROM _honker_stream) + (SELECT count(*) FROM _honker_locks)
		+ (SELECT count(*) FROM _honker_scheduler_tasks) + (SELECT count(*) FROM _honker_notifications)`).Scan(&r))
	require.Equal(t, 1, r)
}
