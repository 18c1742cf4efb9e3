package modernc

import (
	"database/sql"
	"testing"

	"go.uber.org/goleak"
	_ "modernc.org/sqlite"

	"github.com/honker-go/honker/tests/attach/suite"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAttach(t *testing.T) {
	suite.Run(t, func(path string) (*sql.DB, error) {
		return sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(2000)&_pragma=journal_mode(WAL)&_txlock=immediate")
	})
}

func TestAttachWithARollbackJournal(t *testing.T) {
	suite.Run(t, func(path string) (*sql.DB, error) {
		return sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(2000)&_txlock=immediate")
	})
}
