package micro_test

import (
	"testing"

	"github.com/honker-go/honker/internal/testkit"
)

// children are the functions that child processes of these tests can run.
var children = map[string]func(){}

func TestMain(m *testing.M) { testkit.Main(m, children) }
