package sqlite

import "fmt"

// RefuseCommits makes the connections call fail before each commit. If fail returns an error, SQLite rolls the
// transaction back as if the disk had failed, and the committing caller gets the error. A second call replaces
// fail. end restores the normal behavior, unless fail was replaced. fail must be safe for concurrent use.
//
// RefuseCommits is for tests, including tests of applications. Package honkertest finds it through a pool's driver,
// without needing a connection.
func (d wrappedDriver) RefuseCommits(fail func() error) (end func()) {
	refuse := &d.connector.refuse
	refuse.Store(&fail)
	return func() { refuse.CompareAndSwap(&fail, nil) }
}

// askBeforeCommits registers mayCommit as the commit hook. It must be called before a statement, on the goroutine
// that uses the connection.
func (c *conn) askBeforeCommits() {
	if !c.hooked {
		c.hooked = true
		c.RegisterCommitHook(c.mayCommit)
	}
}

// mayCommit is called during a COMMIT, or during a statement that is its own transaction. If it returns non-zero,
// SQLite rolls back and reports a constraint violation.
func (c *conn) mayCommit() int32 {
	fail := c.connector.refuse.Load()
	if fail == nil {
		return 0
	}
	if err := (*fail)(); err != nil {
		c.refused = fmt.Errorf("the commit has failed: %w", err)
		return 1
	}
	return 0
}
