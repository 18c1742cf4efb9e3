package micro_test

import (
	"testing"

	"github.com/honker-go/honker/internal/testkit"
)

// children are what a process of these tests can be, besides the tests themselves.
var children = map[string]func(){}

func TestMain(m *testing.M) { testkit.Main(m, children) }
