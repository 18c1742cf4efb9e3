package store_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/streams"
)

// A filter matches the same events in Go, which decides whether to wake waiters, and in SQL, which reads the events.
func TestFilter_Passes_AsSQL(t *testing.T) {
	tx := begin(t, openFresh(t))
	keys := []string{"", "a", "ab", "abc", "b", "é", "éa", "\U0010ffff", "a\U0010ffff"}
	exec(t, tx, `INSERT INTO _honker_stream (topic, key, payload) VALUES ('t', NULL, '1')`)
	for _, key := range keys {
		_, err := streams.Streams{}.Insert(ctx, tx, "t", key, "1", time.Unix(1, 0))
		require.NoError(t, err)
	}
	for range 500 {
		f := randomFilter(keys, 3)
		page, err := streams.Streams{}.Read(ctx, tx, row.EventRead{Selection: row.Selection{Topic: "t", Filter: f}, Through: row.Unbounded, Limit: 100}, nil)
		require.NoError(t, err)
		selected := map[string]bool{}
		for _, row := range page.Events {
			selected[row.Key] = true
		}
		for _, key := range keys {
			require.Equal(t, selected[key], f.Passes(key), "%v of %q", f.Text(), key)
		}
	}
}

func randomFilter(keys []string, depth int) *row.Filter {
	ops := []row.FilterOp{row.KeyIs, row.KeyPrefix, row.And, row.Or, "unknown"}
	f := &row.Filter{Op: ops[rand.IntN(len(ops))]}
	switch f.Op {
	case row.KeyIs, row.KeyPrefix:
		f.Key = keys[rand.IntN(len(keys))]
	case row.And, row.Or:
		for range rand.IntN(3) {
			if depth > 0 {
				f.Of = append(f.Of, *randomFilter(keys, depth-1))
			}
		}
	}
	return f
}
