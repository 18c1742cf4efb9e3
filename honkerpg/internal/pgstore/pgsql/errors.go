package pgsql

import (
	"database/sql"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// The SQLSTATE codes that honker distinguishes.
const (
	codeSerialization = "40001"
	codeDeadlock      = "40P01"
	codeLockTimeout   = "55P03"
	codeReadOnly      = "25006"
	codeRaised        = "P0001" // by RAISE EXCEPTION in a function or trigger
	codeDropped       = "HK001" // by honker's functions
	classConstraint   = "23"
	classShutdown     = "57P"
)

// code returns the SQLSTATE of an error from the server, or "".
func code(err error) string {
	var e *pgconn.PgError
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// Refused reports whether a constraint, or an exception that a trigger raised, rejected a write.
func Refused(err error) bool {
	c := code(err)
	return c == codeRaised || strings.HasPrefix(c, classConstraint)
}

// Dropped reports whether one of the application's triggers has dropped a row that a function of honker's inserted.
func Dropped(err error) bool { return code(err) == codeDropped }

// Passing reports whether the same transaction may succeed if it runs again: another transaction was in its way.
func Passing(err error) bool {
	c := code(err)
	return c == codeSerialization || c == codeDeadlock
}

// Busy reports whether other transactions kept a statement from running, even if it has waited for them already.
func Busy(err error) bool { return Passing(err) || code(err) == codeLockTimeout }

// ReadOnly reports whether the server only accepts reads, as a standby does.
func ReadOnly(err error) bool { return code(err) == codeReadOnly }

// Decided reports whether a failed commit certainly has had no effect, because the server has answered with an error or
// the transaction had ended before. It does not ask pgconn.SafeToRetry: for a commit whose answer is lost, pgx 5.12
// reports a closed connection that is safe to retry. The server's errors about its own end are not certain either, as
// they also interrupt a committed transaction that waits for a standby.
func Decided(err error) bool {
	c := code(err)
	return c != "" && !strings.HasPrefix(c, classShutdown) || errors.Is(err, pgx.ErrTxCommitRollback) || errors.Is(err, sql.ErrTxDone)
}
