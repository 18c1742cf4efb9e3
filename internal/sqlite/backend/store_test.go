package backend_test

import (
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/honker-go/honker/internal/sqlite/backend"
	"github.com/honker-go/honker/internal/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The statements for SQLite follow the rules for stores.
func TestStores(t *testing.T) {
	storetest.Run(t, func(t *testing.T) *storetest.Fixture {
		file, err := backend.Open(t.Context(), filepath.Join(t.TempDir(), "app.db"), backend.Options{
			Logger: slog.New(slog.DiscardHandler), BusyTimeout: 5 * time.Second, Readers: 2,
		})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, file.Close()) })
		return &storetest.Fixture{Backend: file, Stores: backend.Stores(), Resolution: time.Second}
	})
}
