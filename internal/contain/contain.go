// Package contain keeps panics in the application's functions from ending the work that calls them.
package contain

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
)

// Func returns f, an observer's function called name, with its panics caught and logged, so that the observed work
// continues. A nil f is replaced by a function that does nothing.
func Func[E any](log *slog.Logger, name string, f func(E)) func(E) {
	if f == nil {
		return func(E) {}
	}
	return func(e E) {
		defer func() {
			if r := recover(); r != nil {
				log.Error("honker: "+name+" panicked", "panic", r, "stack", string(debug.Stack()))
			}
		}()
		f(e)
	}
}

// Isolated is like Func, but runs f in its own coroutine. f may then also end its goroutine with runtime.Goexit, as
// t.FailNow does, even if other goroutines depend on the caller. Switching to a coroutine and back doesn't wake
// another processor, but waiting for a goroutine does. A goroutine costs 13 µs of processor time, and a coroutine
// costs 2 µs (BenchmarkObserver_Tx in bench/micro, medians of 14, 2026-11-24).
func Isolated[E any](log *slog.Logger, name string, f func(E)) func(E) {
	contained := Func(log, name, f)
	if f == nil {
		return contained
	}
	return func(e E) {
		returned := false
		next, stop := iter.Pull(func(yield func(struct{}) bool) {
			defer func() {
				if !returned { // the coroutine is ending, so let the caller continue first
					yield(struct{}{})
				}
			}()
			contained(e)
			returned = true
		})
		// If a goroutine is locked to a thread, only that thread can end its coroutine. In that case the coroutine is
		// left behind.
		if _, ending := next(); ending && !lockedToThread() {
			ended := make(chan struct{})
			go func() { // stop also ends the goroutine that calls it
				defer close(ended)
				stop()
			}()
			<-ended
		}
	}
}

// lockedToThread reports whether the calling goroutine has called runtime.LockOSThread, according to the first line
// of its stack trace.
func lockedToThread() bool {
	stack := make([]byte, 128)
	header, _, _ := bytes.Cut(stack[:runtime.Stack(stack, false)], []byte("\n"))
	return bytes.Contains(header, []byte("locked to thread"))
}

// Logger returns log with a handler whose panics are caught. A failure to log must not crash the process or prevent a
// job from being settled. The first panic is written to standard error.
func Logger(log *slog.Logger) *slog.Logger {
	return slog.New(containedHandler{log.Handler(), new(sync.Once)})
}

type containedHandler struct {
	slog.Handler
	told *sync.Once
}

// recover must be deferred directly.
func (h containedHandler) recover() {
	if r := recover(); r != nil {
		h.told.Do(func() { fmt.Fprintf(os.Stderr, "honker: Options.Logger panicked: %v\n%s", r, debug.Stack()) })
	}
}

func (h containedHandler) Enabled(ctx context.Context, level slog.Level) (enabled bool) {
	defer h.recover()
	return h.Handler.Enabled(ctx, level)
}

func (h containedHandler) Handle(ctx context.Context, r slog.Record) error {
	defer h.recover()
	return h.Handler.Handle(ctx, r)
}

func (h containedHandler) WithAttrs(attrs []slog.Attr) (with slog.Handler) {
	with = h
	defer h.recover()
	return containedHandler{h.Handler.WithAttrs(attrs), h.told}
}

func (h containedHandler) WithGroup(name string) (with slog.Handler) {
	with = h
	defer h.recover()
	return containedHandler{h.Handler.WithGroup(name), h.told}
}
