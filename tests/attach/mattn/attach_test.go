package mattn

import (
	"database/sql"
	"testing"

	_ "github.com/mattn/go-sqlite3"
	"go.uber.org/goleak"

	"github.com/honker-go/honker/tests/attach/suite"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestAttach_Mattn runs the suite on a pool of the driver github.com/mattn/go-sqlite3.
func TestAttach_Mattn(t *testing.T) {
	suite.Run(t, func(path string) (*sql.DB, error) {
		return sql.Open("sqlite3", "file:"+path+"?_busy_timeout=2000&_journal_mode=WAL&_txlock=immediate")
	})
}

// honker's statements wait for locks even if the busy timeout of the pool is zero.
func TestAttach_Mattn_Unwaiting(t *testing.T) {
	suite.RunUnwaiting(t, func(path string) (*sql.DB, error) { return sql.Open("sqlite3", "file:"+path+"?_busy_timeout=0") })
}
