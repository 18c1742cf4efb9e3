//go:build unix

package move_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkerpg"
	"github.com/honker-go/honker/honkerpg/internal/pgtest"
	"github.com/honker-go/honker/honkerpg/move"
)

// Mail is the argument of the example's jobs.
type Mail struct{ To string }

// moveMails moves a queue while its producers use the server already, and the jobs of both databases run. It returns when the
// queue has moved and stop has ended its workers.
func moveMails(ctx context.Context, path, dsn, schema string, send func(context.Context, *honker.Job[Mail]) error) error {
	file, err := honker.Open(ctx, path, nil)
	if err != nil {
		return err
	}
	defer file.Close()
	server, err := honkerpg.Open(ctx, dsn, &honkerpg.Options{Schema: schema})
	if err != nil {
		return err
	}
	defer server.Close()

	// The first pass comes before the first new job: moved jobs keep their ids, and new jobs have larger ones.
	if _, err := move.Run(ctx, file, server, &move.Options{Queues: []string{"mails"}, Once: true}); err != nil {
		return err
	}
	mails := honker.NewQueue[Mail](server, "mails", nil)
	old := honker.NewQueue[Mail](file, "mails", nil)
	if _, err := mails.Enqueue(ctx, Mail{To: "new@example.com"}); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	return honker.Run(ctx,
		func(ctx context.Context) error { return mails.Work(ctx, send, nil) },
		func(ctx context.Context) error { return old.Work(ctx, send, nil) },
		func(ctx context.Context) error {
			// It returns when the file has no more jobs of the queue.
			if _, err := move.Run(ctx, file, server, &move.Options{Queues: []string{"mails"}}); err != nil {
				return err
			}
			_, err := mails.WorkDue(ctx, send, nil)
			stop()
			return err
		})
}

// The example of the guide runs the jobs of both databases.
func TestExample(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "app.db")
	db, err := honker.Open(t.Context(), path, nil)
	require.NoError(t, err)
	_, err = honker.NewQueue[Mail](db, "mails", nil).Enqueue(t.Context(), Mail{To: "old@example.com"})
	require.NoError(t, err)
	require.NoError(t, db.Close())
	sent := make(chan string, 2)
	require.NoError(t, moveMails(t.Context(), path, pgtest.DSN(t), pgtest.Schema(t), func(_ context.Context, j *honker.Job[Mail]) error {
		sent <- j.Args.To
		return nil
	}))
	require.ElementsMatch(t, []string{"old@example.com", "new@example.com"}, []string{<-sent, <-sent})
}

func Example() {
	ctx := context.Background()
	file, err := honker.Open(ctx, "app.db", nil)
	if err != nil {
		panic(err)
	}
	defer file.Close()
	server, err := honkerpg.Open(ctx, os.Getenv("DATABASE_URL"), nil)
	if err != nil {
		panic(err)
	}
	defer server.Close()
	report, err := move.Run(ctx, file, server, &move.Options{Progress: func(r move.Report) {
		fmt.Printf("%d jobs, %d events\n", r.Jobs, r.Events)
	}})
	if err != nil {
		panic(err)
	}
	for _, note := range report.Notes {
		fmt.Println(note)
	}
}
