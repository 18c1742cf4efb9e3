//go:build unix

package honkerpg_test

import (
	"regexp"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/honkerpg/internal/pgtest"
)

// No function reads a whole table of jobs, or has its plan compiled, which takes a tenth of a second. The statistics are
// of tables that were empty, as in a new database.
func TestSQL_Plans(t *testing.T) {
	_, f := newForeign(t)
	f.exec(`VACUUM honker.job, honker.result, honker.event, honker.lock, honker.process, honker.token, honker.queue`)
	f.exec(`SELECT honker.enqueue_many('others', array_fill('1'::jsonb, '{3000}'))`)
	config, err := pgx.ParseConfig(pgtest.DSN(t))
	require.NoError(t, err)
	for name, value := range map[string]string{"session_preload_libraries": "auto_explain", "auto_explain.log_min_duration": "0",
		"auto_explain.log_nested_statements": "on", "auto_explain.log_level": "notice"} {
		config.RuntimeParams[name] = value
	}
	bad, plans := regexp.MustCompile(`JIT:|Seq Scan on (job|dead|result|uniq|edge|event)\b`), 0
	config.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
		plans++
		if bad.MatchString(n.Message) {
			t.Error(n.Message)
		}
	}
	conn, err := pgx.ConnectConfig(t.Context(), config)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	for _, call := range []string{
		`enqueue('a', '1')`,
		`enqueue('a', '2', unique_key => 'u', key => 'k')`,
		`enqueue_many('a', '{1,2,3,4}')`,
		`claim('a', 'w', 10)`,
		`extend(3001, 'w', 1, '1 minute')`,
		`ack(3001, 'w', 1)`,
		`ack(3002, 'w', 1, '1')`,
		`retry(3003, 'w', 1, '1 second', 'x')`,
		`fail(3004, 'w', 1, 'x')`,
		`cancel(3005)`,
		`result(3002)`,
		`publish('t', '1')`,
		`notify('c', '1')`,
		`catch_up()`,
		`read('t')`,
		`lock('l', 'me')`,
		`renew('l', 'me')`,
		`unlock('l', 'me')`,
		`rate('r', 1, '1 s')`,
		`pause('a')`,
		`resume('a')`,
		`counts('a')`,
	} {
		plans = 0
		_, err := conn.Exec(t.Context(), f.text(`SELECT honker.`+call))
		require.NoError(t, err, call)
		require.Positive(t, plans, call)
	}
}
