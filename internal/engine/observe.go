package engine

import (
	"log/slog"
	"runtime/debug"
)

// Contained is the function name of an observer, f, with no panic getting out: what it observes
// goes on, also where it runs in a goroutine of the library. A nil f does nothing.
func Contained[E any](log *slog.Logger, name string, f func(E)) func(E) {
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
