package sqlite

import (
	"fmt"
	"runtime"
	"strings"
	"time"
)

// lateAfter is how long a transaction may hold the write lock before it is reported. Other writers are waiting all
// that time, with a BusyTimeout of a few seconds. The first writer to have waited this long reports the holder while
// it runs; see gate.look. The holder's line of code is known only when its transaction ends.
const lateAfter = time.Second

// Late is called after a transaction that held the write lock for a long time. where is the line of the application's
// code that ended the transaction; with DB.Tx, that line also began it. It is "" if a goroutine of the library or of
// database/sql ended the transaction.
type Late func(held time.Duration, where string)

// Check reports a transaction that began at since if it is late. It looks up the line only then,
// because recording the line at each begin would cost more than half a microsecond.
func (late Late) Check(since time.Time) {
	if late == nil {
		return
	}
	if held := time.Since(since); held > lateAfter {
		late(held, callerOutside())
	}
}

// callerOutside returns the innermost line on the stack that is outside honker and database/sql.
func callerOutside() string {
	var pcs [64]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs[:])])
	for {
		f, more := frames.Next()
		if !ofLibrary(f.Function) {
			return fmt.Sprintf("%s:%d", f.File, f.Line)
		}
		if !more {
			return ""
		}
	}
}

func ofLibrary(function string) bool {
	const module = "github.com/honker-go/honker"
	for _, prefix := range []string{module + ".", module + "/internal/", module + "/task.", "database/sql.", "runtime.", "sync."} {
		if strings.HasPrefix(function, prefix) {
			return true
		}
	}
	return function == ""
}
