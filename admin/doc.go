// Package admin looks into a honker file for its operators: what lies in each queue, and which
// locks are held. Its functions take the DB, and work on any queue of the file, whichever binding of honker uses it.
//
// All but [BreakLock] read, and write nothing. A look costs the file little: it goes by indexes, never waits for
// the writer and holds up no writer. Nothing runs when no function is called. All errors work with
// errors.Is and the errors of package honker.
package admin
