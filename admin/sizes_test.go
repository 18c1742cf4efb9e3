package admin_test

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
	"github.com/honker-go/honker/internal/testkit"
)

// fillSizes adds events with small and large payloads, and jobs in each state.
func fillSizes(t *testing.T, ctx context.Context, db *honker.DB) {
	t.Helper()
	large, small := honker.NewStream[string](db, "large", nil), honker.NewStream[string](db, "small", nil)
	noise := make([]byte, 4_500) // a server compresses texts
	_, err := rand.Read(noise)
	require.NoError(t, err)
	text := hex.EncodeToString(noise)
	for range 40 {
		_, _, err := large.PublishMany(ctx, []string{text, text, text, text, text})
		require.NoError(t, err)
		_, _, err = small.PublishMany(ctx, make([]string, 100))
		require.NoError(t, err)
	}
	q := honker.NewQueue[string](db, "mails", nil)
	_, err = q.EnqueueMany(ctx, []string{text, "1", "2"})
	require.NoError(t, err)
	bury(t, honker.NewQueue[int](db, "broken", nil), 1, "no")
}

// The estimated sizes of a file's tables are within a tenth of the sizes that SQLite tells after reading every page.
func TestSizes_BesideDBStat(t *testing.T) {
	testkit.FileOnly(t)
	ctx, db, _, _ := open(t)
	fillSizes(t, ctx, db)
	testkit.Exec(t, db, `CREATE TABLE theirs (a, b)`)
	for range 12 { // 4,096 rows
		testkit.Exec(t, db, `INSERT INTO theirs SELECT hex(randomblob(500)), 1 FROM (SELECT 1 UNION ALL SELECT a FROM theirs LIMIT 2000)`)
	}
	info, err := admin.Sizes(ctx, db)
	require.NoError(t, err)
	told := func(condition string) (n int64) {
		require.NoError(t, db.SQL().QueryRowContext(ctx, `SELECT ifnull(sum(pgsize), 0) FROM dbstat WHERE name IN (SELECT name FROM sqlite_schema WHERE `+condition+`)`).Scan(&n))
		return n
	}
	for _, table := range info.Tables {
		of := fmt.Sprintf("tbl_name = '%s' AND ", table.Name)
		require.InEpsilon(t, told(of+"type = 'table'"), table.Bytes, 0.1, table.Name)
		if n := told(of + "type = 'index'"); n > 0 {
			require.InEpsilon(t, n, table.Indexes, 0.1, table.Name)
		}
	}
	require.InEpsilon(t, told("tbl_name NOT GLOB '_honker*'"), info.Other, 0.1)
	require.Equal(t, "_honker_stream", info.Tables[0].Name)
	require.InEpsilon(t, 4_200, info.Tables[0].Rows, 0.1)
}

// The bytes of events are divided by topic, and the bytes of jobs by queue and state.
func TestSizes_Parts(t *testing.T) {
	ctx, db, _, _ := open(t)
	none, err := admin.Sizes(ctx, db)
	require.NoError(t, err)
	require.Empty(t, none.Topics)
	fillSizes(t, ctx, db)
	testkit.Exec(t, db, testkit.Either(`SELECT 1`, `ANALYZE`))
	info, err := admin.Sizes(ctx, db)
	require.NoError(t, err)
	require.Len(t, info.Topics, 2)
	require.Equal(t, "large", info.Topics[0].Name)
	require.InEpsilon(t, 200, info.Topics[0].Rows, 0.2)
	require.InEpsilon(t, 4_000, info.Topics[1].Rows, 0.2)
	require.Greater(t, info.Topics[0].Bytes, info.Topics[1].Bytes)
	states := map[string]int64{}
	for _, q := range info.Queues {
		states[q.Name+" "+string(q.State)] = q.Rows
	}
	require.Equal(t, map[string]int64{"broken dead": 1, "mails pending": 3}, states)
	_, err = admin.Sizes(ctx, nil)
	require.ErrorIs(t, err, honker.ErrInvalid)
}
