package engine_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/engine"
)

// A page that Read returns was read after Read was called, and belongs to its key.
func TestSharedReads_Fresh(t *testing.T) {
	t.Parallel()
	type page struct {
		key int
		at  int64
	}
	var (
		reads  engine.SharedReads[int, page]
		clock  atomic.Int64
		shares atomic.Int64
		all    sync.WaitGroup
	)
	for i := range 16 {
		all.Go(func() {
			for range 500 {
				called, key := clock.Add(1), i%2
				p, shared, err := reads.Read(t.Context(), key, func(context.Context) (page, error) { return page{key, clock.Add(1)}, nil })
				if err != nil || p.key != key || p.at < called {
					t.Errorf("called at %d for key %d: got %+v, %v", called, key, p, err)
				}
				if shared {
					shares.Add(1)
				}
			}
		})
	}
	all.Wait()
	require.Positive(t, shares.Load())
}

// A reader whose ctx has ended, or whose read fails or panics, does not fail the readers that joined it.
func TestSharedReads_ErrorStays(t *testing.T) {
	t.Parallel()
	var reads engine.SharedReads[string, int]
	failed := errors.New("failed")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	var all sync.WaitGroup
	for i := range 18 {
		all.Go(func() {
			for n := range 500 {
				if err := readBadly(&reads, i%6, n, ended, failed); err != nil {
					t.Errorf("reader %d: %v", i, err)
				}
			}
		})
	}
	all.Wait()
}

// readBadly reads with a fault that depends on the reader, and returns an error if the result is not that of the reader.
func readBadly(reads *engine.SharedReads[string, int], reader, n int, ended context.Context, failed error) (err error) {
	ctx := context.Background()
	if reader == 0 {
		ctx = ended
	}
	defer func() {
		if r := recover(); r != nil && reader != 2 {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	page, _, err := reads.Read(ctx, "key", func(ctx context.Context) (int, error) {
		switch {
		case ctx.Err() != nil:
			return 0, ctx.Err()
		case reader == 1:
			return 0, failed
		case reader == 2:
			panic("a bug")
		}
		return 7, nil
	})
	switch {
	case reader == 0 && errors.Is(err, context.Canceled), reader == 1 && errors.Is(err, failed):
		return nil
	case err != nil || page != 7:
		return fmt.Errorf("read %d: got %d, %w", n, page, err)
	}
	return nil
}
