package honker_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
)

func TestCloseEndsAllThatWaitsAndMayBeCalledAgain(t *testing.T) {
	t.Parallel()
	for name, settled := range map[string]bool{"at once": false, "when all of them sleep": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, err := honker.Open(context.Background(), filepath.Join(t.TempDir(), "file.db"), nil)
			require.NoError(t, err)
			waits := everyWait(t, db)
			if settled { // a message that is heard shows that the watcher runs
				l := listenTo(t, db, "other")
				hear(t, l, tell(t, db, "other", 1))
			}
			began := time.Now()
			closed := make(chan error, 2)
			for range cap(closed) {
				go func() { closed <- db.Close() }()
			}
			for range cap(closed) {
				require.NoError(t, <-closed)
			}
			for what, ended := range waits {
				require.ErrorIs(t, <-ended, honker.ErrClosed, what)
			}
			require.Less(t, time.Since(began), 3*time.Second)
			require.NoError(t, db.Close())
			require.Error(t, db.SQL().Ping(), "asked for too late")
		})
	}
}

func TestCloseLetsHandlersFinishWithAllThatTheyDo(t *testing.T) {
	t.Parallel()
	for name, work := range map[string]func(context.Context, *honker.DB) error{
		"nothing":    func(context.Context, *honker.DB) error { return nil },
		"plain verb": func(ctx context.Context, db *honker.DB) error { _, err := db.Notify(ctx, "news", 1); return err },
		"transaction": func(ctx context.Context, db *honker.DB) error {
			return db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
				_, err := db.NotifyTx(ctx, tx, "news", 1)
				return err
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "file.db")
			db, err := honker.Open(context.Background(), path, nil)
			require.NoError(t, err)
			q := honker.NewQueue[int](db, "jobs", nil)
			id := add(t, q, 1)
			running, finish, worked := make(chan struct{}), make(chan struct{}), make(chan error, 2)
			go func() {
				worked <- q.Work(context.Background(), func(ctx context.Context, _ *honker.Job[int]) error {
					close(running)
					<-finish
					err := work(ctx, db)
					worked <- err
					return err
				}, nil)
			}()
			<-running
			closed := make(chan error, 1)
			go func() { closed <- db.Close() }()
			ended, end := context.WithCancel(context.Background())
			end()
			eventually(t, patient, "closing", func() bool { return q.Work(ended, nil, nil) != nil })
			require.Empty(t, closed, "closed under a handler")
			close(finish)
			handled := <-worked
			require.ErrorIs(t, <-worked, honker.ErrClosed)
			require.NoError(t, <-closed)
			require.NoError(t, handled)

			db = honkertest.OpenFile(t, path, nil)
			gone(t, honker.NewQueue[int](db, "jobs", nil), id)
		})
	}
}
