package streams

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/honker-go/honker/internal/row"
)

// parseFilter parses the text of a filter as written by row.Filter.Text. It returns nil for an empty text.
func parseFilter(text string) (*row.Filter, error) {
	if text == "" {
		return nil, nil
	}
	f := new(row.Filter)
	if err := json.Unmarshal([]byte(text), f); err != nil {
		return nil, fmt.Errorf("parse stored filter %q: %w", text, err)
	}
	return f, nil
}

// filterText returns the value for a filter column, which is NULL if f is nil.
func filterText(f *row.Filter) any {
	if f == nil {
		return nil
	}
	return f.Text()
}

// condition builds an SQL condition and its arguments. Text from callers is always bound, so it never becomes SQL.
type condition struct {
	sql  strings.Builder
	args []any
}

// bind adds v to the arguments and returns the parameter that refers to it.
func (c *condition) bind(v any) string {
	c.args = append(c.args, v)
	return "?" + strconv.Itoa(len(c.args))
}

// eventKey is an event's key. A missing key counts as empty.
const eventKey = `ifnull(key, '')`

// filter writes the condition that an event matches f.
func (c *condition) filter(f row.Filter) {
	switch f.Op {
	case row.KeyIs:
		c.sql.WriteString(eventKey + " = " + c.bind(f.Key))
	case row.KeyPrefix:
		c.prefix(eventKey, f.Key)
	case row.And:
		c.join(" AND ", "1", f.Of)
	case row.Or:
		c.join(" OR ", "0", f.Of)
	default: // a later version's operator matches nothing
		c.sql.WriteString("0")
	}
}

// join writes the filters of, joined by the operator word, or none if there are no filters. It splits the list in
// half, because SQLite limits the depth of expressions and a chain of n operators has depth n.
func (c *condition) join(word, none string, of []row.Filter) {
	switch n := len(of); n {
	case 0:
		c.sql.WriteString(none)
	case 1:
		c.filter(of[0])
	default:
		c.sql.WriteString("(")
		c.join(word, none, of[:n/2])
		c.sql.WriteString(word)
		c.join(word, none, of[n/2:])
		c.sql.WriteString(")")
	}
}

// prefix writes a range condition. LIKE is unsuitable because it has wildcards and ignores case.
func (c *condition) prefix(column, p string) {
	if p == "" {
		c.sql.WriteString("1")
		return
	}
	c.sql.WriteString("(" + column + " >= " + c.bind(p) + " AND " + column + " < " + c.bind(after(p)) + ")")
}

// after returns the least string above all strings that begin with p. The last byte of valid UTF-8 is never
// 0xFF, so it can be incremented.
func after(p string) string {
	b := []byte(p)
	b[len(b)-1]++
	return string(b)
}
