package pgsql

import (
	"cmp"
	"database/sql"
	"database/sql/driver"
	"errors"
	"net"
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
	codeNoStatement   = "26000" // no such prepared statement
	codeStatement     = "42P05" // the prepared statement exists
	codeAborted       = "25P02" // the transaction
	codeDenied        = "42501"
	codeNoDatabase    = "3D000"
	codeNoSchema      = "3F000"
	codeNoColumn      = "42703"
	codeNoFunction    = "42883" // or operator
	codeKind          = "42809" // not a table
	codeTable         = "42P07" // the table exists
	codeFunction      = "42723"
	codeObject        = "42710"

	codeShutdown        = "57P01"
	codeNotYet          = "57P03" // the server starts, stops, or recovers
	codeTooMany         = "53300" // connections
	codeIdleSession     = "57P05"
	codeIdleTransaction = "25P03"
	codeLongTransaction = "25P04"

	classConstraint = "23"
	classConnection = "08"

	classAuthorization = "28"
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

// Denied reports whether the role lacks a right.
func Denied(err error) bool { return code(err) == codeDenied }

// Aborted reports whether an earlier error has ended the transaction.
func Aborted(err error) bool { return code(err) == codeAborted }

// Foreign reports whether a table has other columns, or another kind, than honker's.
func Foreign(err error) bool {
	c := code(err)
	return c == codeNoColumn || c == codeNoFunction || c == codeKind
}

// Elsewhere reports whether the schema or a function of it is not in the database.
func Elsewhere(err error) bool {
	c := code(err)
	return c == codeNoSchema || c == codeNoFunction
}

// Exists returns the name of an object that a migration found in the schema.
func Exists(err error) (name string, ok bool) {
	var e *pgconn.PgError
	if !errors.As(err, &e) || e.Code != codeTable && e.Code != codeFunction && e.Code != codeObject {
		return "", false
	}
	name = e.Message // in the server's language, with the name in quotes
	if _, rest, found := strings.Cut(name, `"`); found {
		name, _, _ = strings.Cut(rest, `"`)
	}
	return name, true
}

// Unprepared reports whether a prepared statement was not there, or was there before. Both happen behind a pooler that
// gives each transaction another connection.
func Unprepared(err error) bool {
	c := code(err)
	return c == codeNoStatement || c == codeStatement
}

// Refuses reports whether the server does not accept the connection string: the user, the password or the database.
func Refuses(err error) bool {
	c := code(err)
	return strings.HasPrefix(c, classAuthorization) || c == codeNoDatabase
}

// Decided reports whether a failed commit certainly has had no effect, because the server has answered with an error or
// the transaction had ended before. A server that ends a connection answers with an error only if it has not committed;
// a committed transaction that waits for a standby gets no answer. A pooler that has lost the server answers with an
// error of its own, which decides nothing. Decided does not ask pgconn.SafeToRetry: for a commit whose answer is lost,
// pgx 5.12 reports a closed connection that is safe to retry.
func Decided(err error) bool {
	var e *pgconn.PgError
	if errors.As(err, &e) {
		return fatal[e.Code] || severity(e) == "ERROR" && !strings.HasPrefix(e.Code, classConnection)
	}
	return unsent(err) || errors.Is(err, pgx.ErrTxCommitRollback) || errors.Is(err, sql.ErrTxDone)
}

// unsent reports whether the end of a message could not be sent. The server ignores the beginning.
func unsent(err error) bool {
	var e *net.OpError
	return errors.As(err, &e) && e.Op == "write"
}

// fatal holds the errors with which a server ends a connection and its transaction. A pooler passes them on.
var fatal = map[string]bool{codeShutdown: true, codeIdleSession: true, codeIdleTransaction: true, codeLongTransaction: true}

// severity returns the English name of the error's severity.
func severity(e *pgconn.PgError) string { return cmp.Or(e.SeverityUnlocalized, e.Severity) }

// Away reports whether a connection could not be made, because the server does not run, is starting or stopping, or has
// no place for it. A later try may succeed. A wrong password or database is no such error.
func Away(err error) bool {
	var e *pgconn.PgError
	if errors.As(err, &e) {
		return e.Code == codeShutdown || e.Code == codeNotYet || e.Code == codeTooMany || strings.HasPrefix(e.Code, classConnection)
	}
	var connect *pgconn.ConnectError
	return errors.As(err, &connect) || errors.Is(err, driver.ErrBadConn)
}
