package testkit

import (
	"testing"

	"github.com/honker-go/honker/internal/engine"
)

// FileOnly marks a test that is about the SQLite file: it runs SQL on honker's own tables, a PRAGMA or a query of
// sqlite_schema, it opens, copies or inspects the file by its path, or it expects an error from the driver. FileOnly
// must be the first statement of the test. The test is skipped when the tests run against another database.
//
// The file internal/arch/testdata/fileonly.golden lists the marked tests of the packages that are to run
// against a second database.
func FileOnly(t testing.TB) {
	t.Helper()
	if engine.Elsewhere != nil {
		t.Skip("the test is about the file")
	}
}

// Differs marks a test of a rule that another database does not keep, and says why. It must be the first statement of
// the test.
func Differs(t testing.TB, why string) {
	t.Helper()
	if engine.Elsewhere != nil {
		t.Skip("Postgres differs: " + why)
	}
}
