package sqlfunc

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/honker-go/honker/internal/sqlite"
	"github.com/honker-go/honker/internal/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Strings are written as honker writes them.
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

// Strings are read back as they were.
func FuzzSQLFunc_Strings(f *testing.F) {
	f.Add("a\"\\\n\x00\u2028é")
	f.Fuzz(func(t *testing.T, text string) {
		text = strings.ToValidUTF8(text, "?")
		var got string
		require.NoError(t, json.Unmarshal(appendString(nil, text), &got))
		require.Equal(t, text, got)
	})
}

// Keys stand in alphabetical order.
func TestSQLFunc_KeyOrder(t *testing.T) {
	for _, members := range [][]member{claimed(store.Job{}), described(store.Job{}), published(store.KeyedEvent{})} {
		keys := make([]string, len(members))
		for i, m := range members {
			keys[i] = m.key
		}
		require.True(t, slices.IsSorted(keys), "%v", keys)
		require.True(t, json.Valid(appendObject(nil, members)))
	}
	require.Equal(t, "[]", array(nil, claimed))
}

// Signatures are parsed, and no two functions have the same form.
func TestSQLFunc_Signatures(t *testing.T) {
	require.Equal(t, []param{{"topic", "Text", false}, {"key", "Text", true}, {"n", "Integer", false}}, parse("topic TEXT, key TEXT?, n INTEGER"))
	require.Empty(t, parse(""))
	require.Panics(t, func() { parse("topic BLOB") })
	seen := map[string]bool{}
	for _, f := range Functions("") {
		form := fmt.Sprintf("%s/%d", f.Name, f.Args)
		require.False(t, seen[form], form)
		seen[form] = true
		require.True(t, f.Name == "notify" || strings.HasPrefix(f.Name, "honker_"), f.Name)
	}
	require.Len(t, seen, 36)
}

// Sums of times stay within what a column holds.
func TestSQLFunc_TimeSums(t *testing.T) {
	c := call{time: time.Unix(100, 0)}
	for seconds, want := range map[int64]int64{0: 100, -200: -100, math.MaxInt64: math.MaxInt64, math.MaxInt64 - 100: math.MaxInt64, math.MinInt64: math.MinInt64 + 100} {
		require.Equal(t, want, c.in(seconds))
	}
}

// The effects of each function are what the table says.
// Each function that declares to change nothing runs where nothing can be changed.
func TestSQLFunc_Effects(t *testing.T) {
	ddl, err := os.ReadFile("../../schema.sql")
	require.NoError(t, err)
	all := Functions(string(ddl))
	connector, err := sqlite.NewConnector(filepath.Join(t.TempDir(), "x.db"),
		sqlite.Config{BusyTimeout: time.Second, AnyFilesystem: true, Functions: sqlite.NewFunctions(all)})
	require.NoError(t, err)
	pool := sql.OpenDB(connector)
	defer pool.Close()
	_, err = pool.Exec(`SELECT honker_bootstrap()`)
	require.NoError(t, err, "on an empty file too")
	conn, err := pool.Conn(context.Background())
	require.NoError(t, err)
	defer conn.Close()
	_, err = conn.ExecContext(context.Background(), `PRAGMA query_only = ON`)
	require.NoError(t, err)
	for _, f := range all {
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
