package modernc

import (
	"database/sql"
	"testing"

	"go.uber.org/goleak"
	_ "modernc.org/sqlite"

	"github.com/honker-go/honker/tests/attach/suite"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A pool of modernc's driver can be attached.
func TestAttach_Modernc(t *testing.T) {
	suite.Run(t, func(path string) (*sql.DB, error) {
		return sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(2000)&_pragma=journal_mode(WAL)&_txlock=immediate")
	})
}

// A pool with a rollback journal can be attached.
func TestAttach_RollbackJournal(t *testing.T) {
	suite.Run(t, func(path string) (*sql.DB, error) {
		return sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(2000)&_txlock=immediate")
	})
}

// Verbs wait for locks where the pool's own statements do not.
func TestAttach_Modernc_Unwaiting(t *testing.T) {
	suite.RunUnwaiting(t, func(path string) (*sql.DB, error) { return sql.Open("sqlite", "file:"+path+"") })
}
