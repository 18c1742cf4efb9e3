package main

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Statements are counted on connections that were opened meanwhile, without those of triggers.
func TestStatements(t *testing.T) {
	stop := traceStatements()
	pool, err := openSingle(t.Context(), filepath.Join(t.TempDir(), "a.db"), Normal, `CREATE TRIGGER twice AFTER INSERT ON orders BEGIN `+insertReceiptOf+`; END`)
	stop()
	require.NoError(t, err)
	defer pool.Close()
	before := statements.Load()
	for range 5 {
		_, err := pool.Exec(insertOrder)
		require.NoError(t, err)
	}
	require.EqualValues(t, 5, statements.Load()-before)
}

const insertReceiptOf = `INSERT INTO receipts (job) VALUES (NEW.id)`
