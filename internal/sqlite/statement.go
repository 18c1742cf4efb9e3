package sqlite

import (
	"context"
	"database/sql/driver"
	"io"
	"slices"
	"strings"
)

// verb is what a statement does to a transaction.
type verb uint8

const (
	vOther     verb = iota // DDL, PRAGMA, scripts: run once, never kept prepared
	vRead                  // SELECT, VALUES; and WITH before either
	vProbe                 // CheckOwner's question
	vWrite                 // INSERT, UPDATE, DELETE, REPLACE; and WITH before any of them
	vSavepoint             // SAVEPOINT, RELEASE
	vBegin                 // BEGIN, deferred
	vBeginNow              // BEGIN IMMEDIATE or EXCLUSIVE
	vCommit
	vRollback
)

// verbOf classifies query by its first word, and by the whole of it where it controls a
// transaction or begins with WITH.
func verbOf(query string) verb {
	if query == dataVersion {
		return vRead // the watcher asks it all day, and it changes nothing
	}
	if strings.HasPrefix(query, probePrefix) {
		return vProbe
	}
	text := strings.TrimRight(outline(query), "; \t\r\n")
	words := strings.Fields(strings.ToUpper(text))
	if len(words) == 0 || strings.Contains(text, ";") {
		return vOther // a script, which may end as something else than it begins
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

// outline is query without what stands in quotes, comments and parentheses.
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

// skipped is the length of the quoted text or the comment that s begins with, or 0. One that
// does not end goes on to the end of s. A doubled quote is two texts beside each other.
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

// afterWith finds the statement that its common tables are for. They stand in parentheses, so
// the first verb is that of the statement. REPLACE may be the name of a table.
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

// endsWithin finds the COMMIT or ROLLBACK of a script, which may begin another transaction after
// it. In the body of a trigger END means something else.
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

// stmt is a prepared statement that keeps the rules of its connection: whether
// database/sql prepared it for a caller or the connection keeps it for itself.
type stmt struct {
	rawStmt
	conn   *conn
	text   string
	verb   verb
	calls  bool   // a function that writes
	ends   bool   // a script with a COMMIT or ROLLBACK in it
	inUse  bool   // it runs, or rows of it are still open
	once   bool   // close it after use
	newest uint64 // when the cache last gave it out
}

// Failpoint is called before each statement of a wrapped connection, with its text:
// tests end the process there, between any two statements of whatever honker does. They
// set it before they open anything. It is nil in all that ships.
var Failpoint func(text string)

// begins marks s as running. A function that it calls may run other statements meanwhile,
// or the same text again, which must not reset this one.
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

// steps tells the functions that s calls which statement they are part of. A function's
// own statements change nothing about that.
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

// rows gives its statement back when it is closed.
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

// end leaves the statement to its next user.
func (r *rows) end() error {
	err := r.rawRows.Close()
	if r.stmt != nil {
		r.stmt.inUse = false
		r.stmt = nil
	}
	return err
}

// cacheSize bounds the statements that a connection keeps prepared. Parsing and
// planning cost a fifth of a small transaction.
const cacheSize = 96

// cache holds prepared statements by their text.
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

// put keeps s, and drops the statement that has not been used for longest.
func (k *cache) put(query string, s *stmt) bool {
	if _, taken := k.byText[query]; taken {
		return false // the kept one is in use by an outer loop
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
