package contain_test

import (
	"log/slog"
	"runtime"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/contain"
)

// An isolated function that panics or ends its goroutine does not affect its caller, not even in a
// synctest bubble.
func TestIsolated(t *testing.T) {
	for name, f := range map[string]func(int){
		"returns": func(int) {},
		"panics":  func(int) { panic("in f") },
		"exits":   func(int) { runtime.Goexit() },
	} {
		run := func(t *testing.T) {
			called := 0
			isolated := contain.Isolated(slog.New(slog.DiscardHandler), "f", func(n int) { called += n; f(n) })
			isolated(1)
			isolated(1)
			require.Equal(t, 2, called)
		}
		t.Run(name, func(t *testing.T) {
			run(t)
			synctest.Test(t, run)
		})
	}
}
