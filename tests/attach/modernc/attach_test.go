package modernc

import (
	"database/sql"
	"testing"

	"go.uber.org/goleak"
	_ "modernc.org/sqlite"

	"github.com/honker-go/honker/tests/attach/suite"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestAttach_Modernc runs the suite on a pool of the driver modernc.org/sqlite.
func TestAttach_Modernc(t *testing.T) {
	suite.Run(t, func(path string) (*sql.DB, error) {
		return sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(2000)&_pragma=journal_mode(WAL)&_txlock=immediate")
	})
}

// TestAttach_RollbackJournal runs the suite on a pool without WAL mode.
func TestAttach_RollbackJournal(t *testing.T) {
	suite.Run(t, func(path string) (*sql.DB, error) {
		return sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(2000)&_txlock=immediate")
	})
}

// honker's statements wait for locks even if the busy timeout of the pool is zero.
func TestAttach_Modernc_Unwaiting(t *testing.T) {
	suite.RunUnwaiting(t, func(path string) (*sql.DB, error) { return sql.Open("sqlite", "file:"+path+"") })
}
