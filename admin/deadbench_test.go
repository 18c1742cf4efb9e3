package admin_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/admin"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
)

// BenchmarkDeadGroups measures the count of 100,000 dead jobs of 12 kinds.
func BenchmarkDeadGroups(b *testing.B) {
	db := honkertest.Open(b, nil)
	testkit.StoreDead(b, db, 100_000, func(n int64) testkit.StoredJob {
		return testkit.StoredJob{Queue: fmt.Sprint("q", n%12), Error: fmt.Sprintf("dial tcp 10.0.%d.%d:80: request %d refused", n%250, n%7, n), DiedAt: n}
	})
	for b.Loop() {
		r, err := admin.DeadGroups(b.Context(), db, admin.JobFilter{})
		require.NoError(b, err)
		require.Len(b, r.Groups, 12)
	}
}
