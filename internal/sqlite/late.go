package sqlite

import (
	"fmt"
	"runtime"
	"strings"
	"time"
)

// lateAfter is how long a transaction may hold the writer before it is told of: other writers
// wait, and their BusyTimeout is some seconds. The first to wait for as long tells of it while it
// runs, see gate.look; its line of code is known only when it ends.
const lateAfter = time.Second

// Late is told of a transaction that has held the writer for long, once it has ended: the line of
// the application that ended it, which for DB.Tx is the one that began it; "" where a goroutine
// of the library's or of database/sql has.
type Late func(held time.Duration, where string)

// Check tells of a transaction that began at since if it is late. The line is looked for only
// then: to remember it at each begin costs more than half a microsecond.
func (late Late) Check(since time.Time) {
	if late == nil {
		return
	}
	if held := time.Since(since); held > lateAfter {
		late(held, callerOutside())
	}
}

// callerOutside is the innermost line on the stack that is neither honker's nor database/sql's.
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
