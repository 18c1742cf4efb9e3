//go:build unix

package honkerpg_test

import (
	"context"
	"crypto/rand"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/flow"
)

// promised returns the functions in the tables of the page.
func promised(t *testing.T) (names []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.FromSlash(pageOfFunctions))
	require.NoError(t, err)
	for _, m := range regexp.MustCompile("(?m)^\\| `honker\\.([a-z_]+)\\(").FindAllStringSubmatch(string(text), -1) {
		names = append(names, m[1])
	}
	return names
}

// Every function works for a role that has no other right, once it acts with the rights of its owner. The role can neither
// read the tables nor call the functions of the library.
func TestSQL_Rights(t *testing.T) {
	db, f := newForeign(t)
	names := promised(t)
	require.Len(t, names, 21)
	started, err := flow.New(db, "order", func(context.Context, int) (int, error) { return 0, nil }, nil).Start(t.Context(), "o-1", 1)
	require.True(t, started && err == nil, err)
	role := "honker_test_" + strings.ToLower(rand.Text())
	f.exec(`CREATE ROLE ` + role)
	atEnd(t, `DROP OWNED BY `+role+`; DROP ROLE `+role)
	f.exec(`GRANT USAGE ON SCHEMA ` + pgx.Identifier{f.schema}.Sanitize() + ` TO ` + role)
	for _, name := range names {
		f.exec(`ALTER FUNCTION honker.` + name + ` SECURITY DEFINER SET search_path = pg_catalog, pg_temp;
			REVOKE EXECUTE ON FUNCTION honker.` + name + ` FROM PUBLIC; GRANT EXECUTE ON FUNCTION honker.` + name + ` TO ` + role)
	}
	conn, err := f.pool.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	as := func(statement string) error {
		_, err := conn.Exec(context.Background(), f.text(statement))
		return err
	}
	require.NoError(t, as(`SET ROLE `+role))
	defer func() { require.NoError(t, as(`RESET ROLE`)) }()
	for _, statement := range []string{
		`SELECT honker.enqueue('a', '1', key => 'k', unique_key => 'u', headers => '{"a": "b"}')`,
		`SELECT honker.enqueue('a', '2', after => '{1}')`,
		`SELECT honker.enqueue_many('a', '{3,4,5}')`,
		`SELECT honker.claim('a', 'w', 10)`,
		`SELECT honker.extend(1, 'w', 1, '1 minute')`,
		`SELECT honker.ack(1, 'w', 1, '1'), honker.retry(3, 'w', 1, '0'), honker.fail(4, 'w', 1), honker.cancel(5), honker.result(1)`,
		`SELECT honker.publish('t', '1'), honker.notify('c', '1'), honker.catch_up(), honker.read('t')`,
		`SELECT honker.lock('l', 'me'), honker.renew('l', 'me'), honker.unlock('l', 'me'), honker.rate('r', 1, '1 s')`,
		`SELECT honker.pause('a'), honker.resume('a'), honker.pause('a', key => 'k'), honker.resume('a', 'k'), honker.counts('a')`,
		`SELECT honker.signal('order', 'o-1', 'paid', 'true')`,
	} {
		require.NoError(t, as(statement), statement)
	}
	// Objects of the caller are not found instead of the server's.
	require.NoError(t, as(`CREATE FUNCTION pg_temp.octet_length(text) RETURNS int LANGUAGE plpgsql AS $$ BEGIN RAISE 'captured'; END $$;
		CREATE TEMPORARY TABLE job (id int); SET search_path = pg_temp, pg_catalog; SELECT honker.enqueue('a', '6'); RESET search_path`))
	for _, statement := range []string{
		`SELECT count(*) FROM honker.job`,
		`DELETE FROM honker.dead`,
		`SELECT honker.resolve('2000-01-01')`,
		`SELECT honker.cancel_('', '{2}', '2000-01-01')`,
	} {
		require.ErrorContains(t, as(statement), "permission denied", statement)
	}
}

// Where no process of the library runs, honker.catch_up numbers events and releases waiting jobs.
func TestSQL_CatchUp(t *testing.T) {
	db, f := newForeign(t)
	require.NoError(t, db.Close())
	f.exec(`SELECT honker.enqueue('a', '1'), honker.publish('t', '"x"')`)
	f.exec(`SELECT honker.enqueue('a', '2', after => '{1}')`)
	f.exec(`SELECT honker.ack(id, 'w', attempts) FROM honker.claim('a', 'w', 10)`)
	left := func() []int {
		return []int{ask[int](f, `SELECT ready FROM honker.counts('a')`), ask[int](f, `SELECT count(*) FROM honker.read('t')`)}
	}
	require.Equal(t, []int{0, 0}, left())
	f.exec(`SELECT honker.catch_up()`)
	require.Equal(t, []int{1, 1}, left())
}
