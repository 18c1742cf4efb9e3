package contain

import "log/slog"

var observer func(o any, log *slog.Logger) any

// RegisterObserver sets the function behind Observer. Package observe calls it, because it has the list of events but
// doesn't export it.
func RegisterObserver(f func(o any, log *slog.Logger) any) { observer = f }

// Observer returns a copy of o, an *observe.Observer, whose functions do not panic. Functions that are nil in o
// become functions that do nothing, except Tx, which stays nil. A nil o is treated as an empty Observer.
func Observer[O any](o O, log *slog.Logger) O { return observer(o, log).(O) }
