//go:build honkerpg && unix

package testkit

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/pgcluster"
)

func init() {
	makeDurable = func() { durable = true }
	crashServer, lostServer, serverVersion, dumpServer = server.crash, isLost, server.version, server.dump
}

// durable means that the server keeps acknowledged commits when it crashes.
var durable bool

// settings returns the settings of a server that this process starts.
func settings() []string {
	if durable {
		return []string{"synchronous_commit = on"}
	}
	return nil
}

func (s *servers) crash() (crashed bool, err error) {
	s.Lock()
	c := s.started
	s.Unlock()
	if c == nil {
		return false, nil
	}
	return true, c.Restart("immediate")
}

// isLost recognizes the errors of honker, of pgx and of the network. This module does not require pgx.
func isLost(err error) bool {
	for _, known := range []error{honker.ErrUncertain, driver.ErrBadConn, io.EOF, io.ErrUnexpectedEOF} {
		if errors.Is(err, known) {
			return true
		}
	}
	var answer interface{ SQLState() string }
	if errors.As(err, &answer) {
		return strings.HasPrefix(answer.SQLState(), "57P") || strings.HasPrefix(answer.SQLState(), "08")
	}
	var unsent interface{ SafeToRetry() bool } // of a connection that pgx has closed
	var network *net.OpError
	return errors.As(err, &unsent) || errors.As(err, &network)
}

func (s *servers) dump(path, to string) error {
	name, err := s.make(path)
	if err != nil {
		return err
	}
	program, err := pgcluster.Program("pg_dump")
	if err != nil {
		return err
	}
	if out, err := exec.Command(program, "-d", os.Getenv(dsnName)+" dbname="+name, "-f", to).CombinedOutput(); err != nil {
		return fmt.Errorf("pg_dump: %w\n%s", err, out)
	}
	return nil
}

func (s *servers) version() (v string, err error) {
	if err := s.prepare(); err != nil {
		return "", err
	}
	err = onServer(func(ctx context.Context, conn *sql.Conn) error {
		return conn.QueryRowContext(ctx, `SHOW server_version`).Scan(&v)
	})
	return v, err
}
