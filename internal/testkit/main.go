package testkit

import (
	"testing"

	"go.uber.org/goleak"
)

// Main is the TestMain of a package with children. In a child it runs what the child is
// and exits; otherwise it runs the tests with the seed of -seed, and fails when a
// goroutine is left.
func Main(m *testing.M, children map[string]func()) {
	RunChild(children)
	UseSeed()
	goleak.VerifyTestMain(m)
}
