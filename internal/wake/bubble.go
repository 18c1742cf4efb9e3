package wake

import (
	"bytes"
	"runtime"
)

// InBubble reports whether the caller runs in a testing/synctest bubble. It checks the first line of the stack trace,
// because importing synctest would pull package testing into every program.
func InBubble() bool {
	stack := make([]byte, 128)
	header, _, _ := bytes.Cut(stack[:runtime.Stack(stack, false)], []byte("\n"))
	return bytes.Contains(header, []byte("synctest bubble"))
}
