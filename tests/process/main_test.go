package process_test

import (
	"testing"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/testkit"
)

// children maps the names of child processes to their main functions.
var children = map[string]func(){}

// openShared is testkit.OpenShared. On a server the test becomes parallel, because its processes wait for the server more than
// they work.
func openShared(t *testing.T) (path string, db *honker.DB) {
	t.Helper()
	if !testkit.OnFile() {
		t.Parallel()
	}
	return testkit.OpenShared(t)
}

// brief returns n for a short run on a file, and half of it on a server, whose connections cost more time than the tests have.
func brief[T int | time.Duration](n T) T {
	if testkit.OnFile() {
		return n
	}
	return n / 2
}

func TestMain(m *testing.M) { testkit.Main(m, children) }

// counted is the type of a column that counts the rows of a table.
var counted = testkit.Either(`INTEGER PRIMARY KEY AUTOINCREMENT`, `BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY`)
