package store

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/honker-go/honker/internal/row"
)

// parseFilter reads what Text wrote. "" is no filter.
func parseFilter(text string) (*row.Filter, error) {
	if text == "" {
		return nil, nil
	}
	f := new(row.Filter)
	if err := json.Unmarshal([]byte(text), f); err != nil {
		return nil, fmt.Errorf("stored filter %q: %w", text, err)
	}
	return f, nil
}

// condition is a piece of SQL and what is bound in it. Text of a caller is always bound, so
// that it never becomes SQL.
type condition struct {
	sql  strings.Builder
	args []any
}

// bind returns the parameter that stands for v.
func (c *condition) bind(v any) string {
	c.args = append(c.args, v)
	return "?" + strconv.Itoa(len(c.args))
}

// eventKey is the key of an event, where no key counts as "".
const eventKey = `ifnull(key, '')`

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
	default: // written by a later version: nothing rather than everything
		c.sql.WriteString("0")
	}
}

// join writes of with word between its elements. It halves the list, because SQLite bounds
// the depth of an expression, and a chain of n operators has the depth n.
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

// prefix writes a range of bytes: LIKE has wildcards and ignores case.
func (c *condition) prefix(column, p string) {
	if p == "" {
		c.sql.WriteString("1")
		return
	}
	c.sql.WriteString("(" + column + " >= " + c.bind(p) + " AND " + column + " < " + c.bind(after(p)) + ")")
}

// after is the least string above all that begin with p. The last byte of UTF-8 is never
// 0xFF, so that it can be raised.
func after(p string) string {
	b := []byte(p)
	b[len(b)-1]++
	return string(b)
}
