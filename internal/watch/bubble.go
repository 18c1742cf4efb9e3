package watch

import (
	"bytes"
	"runtime"
)

// InBubble reports whether the caller runs in a bubble of testing/synctest, as the first line of
// its stack says. To import that package would bring package testing into every program.
func InBubble() bool {
	stack := make([]byte, 128)
	header, _, _ := bytes.Cut(stack[:runtime.Stack(stack, false)], []byte("\n"))
	return bytes.Contains(header, []byte("synctest bubble"))
}
