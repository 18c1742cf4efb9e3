package testkit

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// Main implements TestMain for a package with child processes. In a child process it runs the child and exits.
// Otherwise it runs the tests with the seed from the -seed flag and with no information about the machine's disk, and
// fails if a goroutine is left running.
func Main(m *testing.M, children map[string]func()) {
	RunChild(children)
	UseSeed()
	NoDisk()
	if bubbles {
		if err := startServer(); err != nil {
			fmt.Fprintln(os.Stderr, "testkit:", err)
			os.Exit(1)
		}
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if err := stopServer(); err != nil {
			fmt.Fprintln(os.Stderr, "testkit:", err)
			code = max(code, 1)
		}
		os.Exit(code)
	}))
}
