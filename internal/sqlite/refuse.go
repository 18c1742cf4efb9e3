package sqlite

import "fmt"

// RefuseCommits lets each commit of the connections ask fail first. One for which that returns an error is none:
// SQLite rolls the transaction back, as it does where the disk fails, and the caller gets that error. A second call
// takes the place of the first; end undoes its own. fail may be called by several goroutines at once.
//
// It is for tests, of applications too: package honkertest finds it by the driver of a pool, for which it needs no
// connection.
func (d wrappedDriver) RefuseCommits(fail func() error) (end func()) {
	refuse := &d.connector.refuse
	refuse.Store(&fail)
	return func() { refuse.CompareAndSwap(&fail, nil) }
}

// askBeforeCommits lets SQLite ask mayCommit from now on. It is called before a statement, since a connection is
// used by one goroutine at a time.
func (c *conn) askBeforeCommits() {
	if !c.hooked {
		c.hooked = true
		c.RegisterCommitHook(c.mayCommit)
	}
}

// mayCommit is called in the middle of a COMMIT, or of a statement that is a transaction of its own. SQLite makes a
// rollback of it if it does not return 0, and says that a constraint was broken.
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
