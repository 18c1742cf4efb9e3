package honker_test

import (
	"testing"

	"github.com/honker-go/honker/internal/testkit"
)

// children maps names to the programs that the test binary can run as a child process.
var children = map[string]func(){}

func TestMain(m *testing.M) { testkit.Main(m, children) }
