package ncruces

import (
	"database/sql"
	"testing"

	_ "github.com/ncruces/go-sqlite3/driver"
	"go.uber.org/goleak"

	"github.com/honker-go/honker/tests/attach/suite"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestAttach_Ncruces runs the suite on a pool of the driver github.com/ncruces/go-sqlite3.
func TestAttach_Ncruces(t *testing.T) {
	suite.Run(t, func(path string) (*sql.DB, error) {
		return sql.Open("sqlite3", "file:"+path+"?_pragma=busy_timeout(2000)&_pragma=journal_mode(WAL)&_txlock=immediate")
	})
}

// honker's statements wait for locks even if the busy timeout of the pool is zero.
func TestAttach_Ncruces_Unwaiting(t *testing.T) {
	suite.RunUnwaiting(t, func(path string) (*sql.DB, error) {
		return sql.Open("sqlite3", "file:"+path+"?_pragma=busy_timeout(0)")
	})
}
