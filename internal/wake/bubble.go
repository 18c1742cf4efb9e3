package wake

import (
	"bytes"
	"runtime"
)

// InBubble reports whether the caller runs in a testing/synctest bubble. It looks at the first line
// of the stack, because importing synctest would pull package testing into every program.
func InBubble() bool {
	stack := make([]byte, 128)
	header, _, _ := bytes.Cut(stack[:runtime.Stack(stack, false)], []byte("\n"))
	return bytes.Contains(header, []byte("synctest bubble"))
}
