package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
)

func TestGolden_Batches(t *testing.T) {
	inFile(t, func(t *testing.T, s *session) {
		s.do("batches", "-o", "table")
		db := open(t, "app.db")
		for _, name := range []string{"nightly", "import"} {
			batch, err := db.NewBatch(t.Context(), &honker.BatchOptions{Name: name})
			require.NoError(t, err)
			_, err = honker.NewQueue[int](db, "rows", nil).Enqueue(t.Context(), 1, honker.InBatch(batch.ID))
			require.NoError(t, err)
		}
		require.NoError(t, db.Close())
		s.each("batches")
		s.do("batches", "--limit", "1", "-o", "name")
		s.do("batches", "--limit", "1", "-o", "json")
		s.do("batches", "--sort", "oldest", "-o", "name")
		s.do("batches", "--limit", "0")
		s.do("batches", "--after", "nonsense")
		s.matches("batches")
	})
}
