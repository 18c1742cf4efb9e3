package honker_test

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/testkit"
)

func TestAttachedPoolDoesAllThatAnOpenedFileDoes(t *testing.T) {
	for _, journal := range []string{"WAL", "DELETE"} {
		for _, conns := range []int{1, 2, 0} {
			t.Run(fmt.Sprint(journal, conns), func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "app.db")
				testkit.MakeApplication(t, path)
				pool := testkit.OpenPool(t, path)
				pool.SetMaxOpenConns(conns)
				testkit.ExecAll(t, pool, `PRAGMA journal_mode=`+journal)
				db, err := honker.Attach(context.Background(), pool, nil)
				require.NoError(t, err)
				testkit.UseAll(t, db, testkit.OpenPool(t, path))
				require.NoError(t, db.Check(context.Background()))
				require.NoError(t, db.Close())
				require.EqualValues(t, 1, testkit.QueryInt(t, pool, `SELECT count(*) FROM orders`), "the pool is still open")
			})
		}
	}
}

func TestTransactionsOnAnAttachedPoolWaitForEachOther(t *testing.T) {
	path := filepath.Join(t.TempDir(), "app.db")
	testkit.MakeFile(t, path)             // in WAL mode
	pool, err := sql.Open("sqlite", path) // with the driver's defaults: no statement waits
	require.NoError(t, err)
	defer pool.Close()
	db, err := honker.Attach(context.Background(), pool, nil)
	require.NoError(t, err)
	defer db.Close()
	q := honker.NewQueue[int](db, "jobs", nil)
	ended := make(chan error, 20)
	for range cap(ended) {
		go func() {
			ended <- db.Tx(testkit.Context(t, testkit.Timeout), func(ctx context.Context, tx *sql.Tx) error {
				_, err := q.EnqueueTx(ctx, tx, 1)
				return err
			})
		}()
	}
	for range cap(ended) {
		assert.NoError(t, <-ended)
	}
}
