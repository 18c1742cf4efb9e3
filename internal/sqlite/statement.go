package sqlite

import (
	"context"
	"database/sql/driver"
	"io"
	"slices"
	"strings"
)

// verb classifies statements by their effect on a transaction.
type verb uint8

const (
	vOther     verb = iota // DDL, PRAGMA and scripts: run once, not cached
	vRead                  // SELECT and VALUES, also after WITH
	vProbe                 // the probe of CheckOwner
	vWrite                 // INSERT, UPDATE, DELETE and REPLACE, also after WITH
	vSavepoint             // SAVEPOINT, RELEASE
	vBegin                 // BEGIN, deferred
	vBeginNow              // BEGIN IMMEDIATE or EXCLUSIVE
	vCommit
	vRollback
)

// verbOf classifies query by its first word. Statements that control a transaction or begin with
// WITH are parsed further.
func verbOf(query string) verb {
	if query == dataVersion {
		return vRead // run often by the watcher, and changes nothing
	}
	if strings.HasPrefix(query, probePrefix) {
		return vProbe
	}
	text := strings.TrimRight(outline(query), "; \t\r\n")
	words := strings.Fields(strings.ToUpper(text))
	if len(words) == 0 || strings.Contains(text, ";") {
		return vOther // a script, whose later statements may be of another kind
	}
	switch words[0] {
	case "SELECT", "VALUES":
		return vRead
	case "INSERT", "UPDATE", "DELETE", "REPLACE":
		return vWrite
	case "WITH":
		return afterWith(words)
	case "SAVEPOINT", "RELEASE":
		return vSavepoint
	}
	return control(words)
}

// outline returns query without quoted text, comments and parenthesized parts.
func outline(query string) string {
	var b strings.Builder
	depth := 0
	for len(query) > 0 {
		end := skipped(query)
		switch c := query[0]; {
		case end > 0:
			b.WriteByte(' ')
			query = query[end:]
			continue
		case c == '(':
			depth++
		case c == ')':
			depth--
			b.WriteByte(' ')
		case depth == 0:
			b.WriteByte(c)
		}
		query = query[1:]
	}
	return b.String()
}

// skipped returns the length of the quoted text or comment at the start of s, or 0 if there is none. An unterminated
// quote extends to the end of s. Text with a doubled quote counts as two adjacent quoted texts.
func skipped(s string) int {
	var end string
	from := 1
	switch {
	case strings.HasPrefix(s, "--"):
		end = "\n"
	case strings.HasPrefix(s, "/*"):
		from, end = 2, "*/"
	case s[0] == '\'', s[0] == '"', s[0] == '`':
		end = s[:1]
	case s[0] == '[':
		end = "]"
	default:
		return 0
	}
	i := strings.Index(s[from:], end)
	if i < 0 {
		return len(s)
	}
	return from + i + len(end)
}

// afterWith returns the verb of the statement that follows the common table expressions. The
// expressions are in parentheses, so the first verb belongs to the statement. REPLACE may also be a
// table name.
func afterWith(words []string) verb {
	for i, word := range words {
		switch {
		case word == "SELECT", word == "VALUES":
			return vRead
		case word == "INSERT", word == "UPDATE", word == "DELETE",
			word == "REPLACE" && i+1 < len(words) && words[i+1] == "INTO":
			return vWrite
		}
	}
	return vOther
}

// endsWithin reports whether a script contains COMMIT or ROLLBACK, even if it then begins another transaction. It
// ignores scripts with a trigger, in which END has another meaning.
func endsWithin(script string) bool {
	for part := range strings.SplitSeq(outline(script), ";") {
		words := strings.Fields(strings.ToUpper(part))
		if slices.Contains(words, "TRIGGER") {
			return false
		}
		if v := control(words); v == vCommit || v == vRollback {
			return true
		}
	}
	return false
}

func control(words []string) verb {
	switch strings.Join(cutWord(words, "TRANSACTION"), " ") {
	case "BEGIN", "BEGIN DEFERRED":
		return vBegin
	case "BEGIN IMMEDIATE", "BEGIN EXCLUSIVE":
		return vBeginNow
	case "COMMIT", "END":
		return vCommit
	case "ROLLBACK":
		return vRollback
	}
	return vOther
}

func cutWord(words []string, word string) []string {
	if n := len(words); n > 1 && words[n-1] == word {
		return words[:n-1]
	}
	return words
}

// stmt is a prepared statement that follows its connection's rules. It may belong to a caller or to
// the connection's cache.
type stmt struct {
	rawStmt
	conn   *conn
	text   string
	verb   verb
	calls  bool   // calls a function that writes
	ends   bool   // a script that contains COMMIT or ROLLBACK
	inUse  bool   // running, or with open rows
	once   bool   // must be closed after use
	lent   bool   // belongs to the caller, who has not closed it
	newest uint64 // cache clock at the last use
}

// Close implements driver.Stmt for a statement that belongs to the caller.
func (s *stmt) Close() error {
	err := s.rawStmt.Close()
	if s.lent {
		s.lent = false
		s.conn.lent--
		s.conn.markUnused()
	}
	return err
}

// Failpoint is called with the text of each statement before a wrapped connection runs it. Tests
// use it to kill the process between any two statements. They must set it before opening a
// database. It is always nil outside tests.
var Failpoint func(text string)

// begins marks s as running. A function called by s may run other statements, or the same text
// again, which must not reset s.
func (s *stmt) begins() {
	if Failpoint != nil {
		Failpoint(s.text)
	}
	if s.conn.connector.refuse.Load() != nil {
		s.conn.askBeforeCommits()
	}
	s.inUse = true
	s.steps()
}

// steps records s as the statement on whose behalf functions are called. Statements run by
// functions are not recorded.
func (s *stmt) steps() {
	if s.conn.depth == 0 {
		s.conn.current = s
	}
}

type rawStmt interface {
	driver.Stmt
	driver.StmtExecContext
	driver.StmtQueryContext
}

func (s *stmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	return s.conn.exec(ctx, s, args)
}

func (s *stmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	return s.conn.query(ctx, s, args)
}

// rows releases its statement when it is closed.
type rows struct {
	rawRows
	stmt *stmt
}

type rawRows interface {
	driver.Rows
	driver.RowsColumnTypeDatabaseTypeName
	driver.RowsColumnTypeLength
	driver.RowsColumnTypeNullable
	driver.RowsColumnTypePrecisionScale
	driver.RowsColumnTypeScanType
}

func (r *rows) Next(dest []driver.Value) error {
	r.stmt.steps()
	err := r.rawRows.Next(dest)
	if err != nil && err != io.EOF {
		return r.stmt.conn.wrapCause(err)
	}
	return err
}

func (r *rows) Close() error {
	s := r.stmt
	err := r.end()
	if s != nil {
		s.conn.rowsClosed(s)
	}
	return err
}

// end releases the statement for its next user.
func (r *rows) end() error {
	err := r.rawRows.Close()
	if r.stmt != nil {
		r.stmt.inUse = false
		r.stmt = nil
	}
	return err
}

// cacheSize is the maximum number of prepared statements cached by a connection. Parsing and planning take about a
// fifth of the time of a small transaction.
const cacheSize = 96

// cache holds prepared statements by text.
type cache struct {
	byText map[string]*stmt
	clock  uint64
}

func (k *cache) get(query string) *stmt {
	s := k.byText[query]
	if s == nil || s.inUse {
		return nil
	}
	k.clock++
	s.newest = k.clock
	return s
}

// put adds s and reports whether it did. If the cache is full, it evicts the least recently used
// statement.
func (k *cache) put(query string, s *stmt) bool {
	if _, taken := k.byText[query]; taken {
		return false // the cached statement is in use by an outer loop
	}
	if k.byText == nil {
		k.byText = make(map[string]*stmt)
	}
	if len(k.byText) >= cacheSize && !k.evict() {
		return false
	}
	k.clock++
	s.newest = k.clock
	k.byText[query] = s
	return true
}

func (k *cache) evict() bool {
	var text string
	var oldest *stmt
	for q, s := range k.byText {
		if !s.inUse && (oldest == nil || s.newest < oldest.newest) {
			text, oldest = q, s
		}
	}
	if oldest == nil {
		return false
	}
	delete(k.byText, text)
	_ = oldest.rawStmt.Close()
	return true
}

func (k *cache) clear() {
	for q, s := range k.byText {
		_ = s.rawStmt.Close()
		delete(k.byText, q)
	}
}
