package main

import (
	"sync/atomic"
	"unsafe"

	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"
)

// statements is the number of statements that SQLite has started on the connections of traceStatements. A statement of a
// trigger is not counted.
var statements atomic.Int64

// traceStatements makes SQLite count the statements of all connections that any package opens from now on, until stop
// is called.
func traceStatements() (stop func()) {
	tls := libc.NewTLS()
	sqlite3.Xsqlite3_auto_extension(tls, pointer(traceConnection))
	return func() {
		sqlite3.Xsqlite3_cancel_auto_extension(tls, pointer(traceConnection))
		tls.Close()
	}
}

// traceConnection is called by SQLite for each new connection.
func traceConnection(tls *libc.TLS, conn, _, _ uintptr) int32 {
	return sqlite3.Xsqlite3_trace_v2(tls, conn, sqlite3.SQLITE_TRACE_STMT, pointer(traceStatement), 0)
}

// traceStatement is called by SQLite when a statement starts. The text of a statement of a trigger is a comment.
func traceStatement(_ *libc.TLS, _ uint32, _, _, text uintptr) int32 {
	if s := libc.GoString(text); len(s) < 2 || s[:2] != "--" {
		statements.Add(1)
	}
	return 0
}

// pointer returns f as a function pointer of C. It must be a function without variables of an enclosing one.
func pointer[T any](f T) uintptr { return *(*uintptr)(unsafe.Pointer(&struct{ f T }{f})) }
