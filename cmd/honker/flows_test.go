package main

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	runflow "github.com/honker-go/honker/flow"
)

// fillFlows adds a run that has failed, a run that is done, and run 17, which waits for a signal.
func fillFlows(t *testing.T, db *honker.DB) {
	t.Helper()
	child := runflow.New(db, "ship", func(_ context.Context, in int) (string, error) { return "parcel", nil }, nil)
	f := runflow.New(db, "order", func(ctx context.Context, in int) (string, error) {
		price, err := runflow.Step(ctx, "price", func(context.Context) (int, error) { return in * 2, nil })
		if err != nil {
			return "", err
		}
		if price == 0 {
			return "", honker.Reject(errors.New("nothing to sell"))
		}
		if _, err := runflow.Call(ctx, "shipping", child, price); err != nil {
			return "", err
		}
		return runflow.Wait[string](ctx, "go", time.Hour)
	}, nil)
	for i, id := range []string{"16", "17"} {
		started, err := f.Start(t.Context(), id, i)
		require.NoError(t, err)
		require.True(t, started)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 2)
	go func() { done <- f.Work(ctx, nil) }()
	go func() { done <- child.Work(ctx, nil) }()
	time.Sleep(time.Second)
	synctest.Wait()
	stop()
	require.NoError(t, errors.Join(<-done, <-done))
}

func TestGolden_Flows(t *testing.T) {
	inFile(t, func(t *testing.T, s *session) {
		s.do("flow", "ls", "-o", "table")
		db := open(t, "app.db")
		fillFlows(t, db)
		require.NoError(t, db.Close())
		s.each("flow", "ls")
		s.do("flow", "ls", "order", "--state", "failed", "-o", "table")
		s.do("flow", "ls", "--limit", "1", "-o", "name")
		s.do("flow", "ls", "--state", "odd")
		s.do("flow", "show", "order", "17", "-o", "table")
		s.do("flow", "show", "order", "18")
		s.do("flow", "steps", "order", "17", "-o", "table")
		s.do("flow", "steps", "order", "17", "-o", "json")
		s.do("__complete", "flow", "show", "")
		s.do("__complete", "flow", "show", "order", "")
		s.do("flow", "signal", "order", "17", "go", "{")
		s.do("flow", "restart", "order", "16", "--from", "none")
		s.do("flow", "restart", "order", "16", "--from", "price", "-o", "name")
		s.do("flow", "cancel", "order", "17", "-o", "json")
		s.do("flow", "signal", "order", "17", "go", `"now"`, "-o", "name")
		s.do("flow", "signal", "order", "17", "go", `"again"`)
		s.do("flow", "cancel", "order", "99")
		s.matches("flows")
	})
}
