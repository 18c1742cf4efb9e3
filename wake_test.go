package honker_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
)

// Whoever begins to wait while the hub asks what is new has looked too early, and must
// not be told too late. Each round two begin, for names that nobody waited for, and one
// commit, without a hint, is for both.
func TestNobodyIsForgottenWhoBeginsToWaitWhileTheHubAsks(t *testing.T) {
	db := honkertest.Open(t, nil)
	ctx := bounded(t, 30*time.Second)
	for round := range 300 {
		names := [2]string{fmt.Sprint("a", round), fmt.Sprint("b", round)}
		heard := make(chan error, 4)
		for _, name := range names {
			go func() { heard <- firstEvent(ctx, db, name) }()
			l, err := db.Listen(ctx, name)
			require.NoError(t, err)
			go func() { _, err := l.Next(ctx); heard <- err }()
		}
		time.Sleep(time.Duration(round%40) * 25 * time.Microsecond) // any moment of the two others
		require.NoError(t, db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			for _, name := range names {
				if _, err := honker.NewStream[int](db, name, nil).PublishTx(ctx, tx, 1); err != nil {
					return err
				}
				if _, err := db.NotifyTx(ctx, tx, name, 1); err != nil {
					return err
				}
			}
			return nil
		}))
		for range 4 {
			require.NoError(t, within(ctx, heard, 5*time.Second), "round %d", round)
		}
	}
}

func firstEvent(ctx context.Context, db *honker.DB, topic string) error {
	for _, err := range honker.NewStream[int](db, topic, nil).Subscribe(ctx, "c", nil) {
		return err
	}
	return nil
}

func within(ctx context.Context, c <-chan error, d time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	select {
	case err := <-c:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
