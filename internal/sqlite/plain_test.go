package sqlite

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNumberedParametersBecomeBareOnes(t *testing.T) {
	for query, want := range map[string]bareText{
		`SELECT 1`:                     {text: `SELECT 1`},
		`INSERT INTO t VALUES (?1)`:    {`INSERT INTO t VALUES (?)`, []int{0}},
		`SELECT ?2, ?1 || ?12 || ?2`:   {`SELECT ?, ? || ? || ?`, []int{1, 0, 11, 1}},
		`UPDATE t SET v = ?2 WHERE ?1`: {`UPDATE t SET v = ? WHERE ?`, []int{1, 0}},
		`VALUES (?1, ?2, ?), (?1, ?)`:  {`VALUES (?, ?, ?), (?, ?)`, []int{0, 1, 2, 0, 3}},
	} {
		require.Equal(t, want, newBareText(query))
	}
}

func TestTransactionThatIsWrappedTakesTheSameStatements(t *testing.T) {
	_, pool := home(t, file(t), Config{})
	ctx := context.Background()
	tx, err := pool.BeginTx(ctx, nil)
	require.NoError(t, err)
	defer tx.Rollback()
	require.Equal(t, Querier(tx), Plain(tx))
	q := Plain(struct{ Querier }{tx})
	_, err = q.ExecContext(ctx, `INSERT INTO t (v) VALUES (?2), (?1), (?2 + ?1)`, 1, 2)
	require.NoError(t, err)
	rows, err := q.QueryContext(ctx, `SELECT sum(v) + ?2 FROM t WHERE v <= ?1`, 2, 100)
	require.NoError(t, err)
	defer rows.Close()
	require.True(t, rows.Next())
	var sum int
	require.NoError(t, rows.Scan(&sum))
	require.Equal(t, 103, sum)
}
