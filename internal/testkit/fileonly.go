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

// Differs marks a test or subtest of a rule that Postgres does not keep. It must be its first statement. The row is the
// first cell of a row of the table "What differs from a file" in docs/guide/postgres.md, without backticks. The file
// internal/arch/testdata/differs.golden lists the marks.
func Differs(t testing.TB, row string) {
	t.Helper()
	if engine.Elsewhere != nil {
		t.Skip("Postgres differs: " + row)
	}
}

// AsFile reports whether the test runs on a file, as in a testing/synctest bubble. It marks the part of a test that
// differs on Postgres; the row is that of Differs.
func AsFile(row string) bool { return OnFile() }

// OnFile reports whether the test runs on a file, for steps that only a file has, such as those of other bindings, and for
// the names of tables.
func OnFile() bool { return engine.Elsewhere == nil || onFile() }
