package micro_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
)

const enqueueBySQL = `SELECT honker_enqueue(?, ?, NULL, NULL, 0, 3, NULL)`

// BenchmarkSQL_EnqueueTx calls honker_enqueue in a transaction, compared with EnqueueTx.
func BenchmarkSQL_EnqueueTx(b *testing.B) {
	verbs, calls := openBench(b, nil), openBench(b, nil)
	q, text := honker.NewQueue[payload](verbs, "bench", nil), rawText(b)
	inTxs := func(db *honker.DB, enqueue func(context.Context, *sql.Tx) error) func(int) {
		return func(n int) {
			for range n {
				require.NoError(b, db.Tx(context.Background(), enqueue))
			}
		}
	}
	compare(b, 1000,
		inTxs(verbs, func(ctx context.Context, tx *sql.Tx) error {
			_, err := q.EnqueueTx(ctx, tx, onePayload)
			return err
		}),
		inTxs(calls, func(ctx context.Context, tx *sql.Tx) error {
			return tx.QueryRowContext(ctx, enqueueBySQL, "bench", text).Scan(new(int64))
		}))
}

// BenchmarkSQL_Enqueue calls honker_enqueue outside a transaction, compared with a raw INSERT.
func BenchmarkSQL_Enqueue(b *testing.B) {
	r, db := openRaw(b), openBench(b, nil)
	insert, text := r.prepare(rawColumns+rawRow), rawText(b)
	compare(b, 1000,
		func(n int) {
			for range n {
				now := time.Now().Unix()
				r.exec(insert, "bench", text, 0, now, 3, now)
			}
		},
		func(n int) {
			for range n {
				require.NoError(b, db.SQL().QueryRow(enqueueBySQL, "bench", text).Scan(new(int64)))
			}
		})
}

// BenchmarkSQL_EnqueueMany makes a thousand calls in a statement, compared with a multi-row INSERT.
func BenchmarkSQL_EnqueueMany(b *testing.B) {
	r, db := openRaw(b), openBench(b, nil)
	text := rawText(b)
	insert := r.prepare(`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000)
INSERT INTO _honker_live (queue, payload, priority, run_at, max_attempts, created_at) SELECT 'bench', ?, 0, ?, 3, ? FROM n`)
	calls := `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000)
SELECT honker_enqueue('bench', ?, NULL, NULL, 0, 3, NULL) FROM n`
	compare(b, 10000,
		func(n int) {
			for ; n > 0; n -= 1000 {
				now := time.Now().Unix()
				r.exec(insert, text, now, now)
			}
		},
		func(n int) {
			for ; n > 0; n -= 1000 {
				_, err := db.SQL().Exec(calls, text)
				require.NoError(b, err)
			}
		})
}
