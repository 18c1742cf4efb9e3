package honkertest_test

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/testkit"
)

func TestMain(m *testing.M) {
	testkit.InBubbles()
	testkit.Main(m, nil)
}

var errCause = errors.New("no paper")

// recorder is a testing.TB that records failures instead of failing the test.
type recorder struct {
	testing.TB
	mu   sync.Mutex
	text strings.Builder
	log  testkit.Log
}

func (r *recorder) Output() io.Writer { return &r.log }

func (r *recorder) Helper() {}

func (r *recorder) Logf(format string, args ...any) {}

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintf(&r.text, format+"\n", args...)
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

// failureOf returns f's failure messages, or "" if f passes.
func failureOf(t *testing.T, f func(t testing.TB)) string {
	t.Helper()
	r := &recorder{TB: t}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f(r)
	}()
	<-ended
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.String()
}

// requireFails asserts that f fails with a message that contains all of texts.
func requireFails(t *testing.T, f func(t testing.TB), texts ...string) {
	t.Helper()
	failure := failureOf(t, f)
	require.Contains(t, failure, "honkertest: ")
	for _, text := range texts {
		require.Contains(t, failure, text)
	}
}

// requirePasses asserts that f does not fail.
func requirePasses(t *testing.T, f func(t testing.TB)) {
	t.Helper()
	require.Empty(t, failureOf(t, f))
}
