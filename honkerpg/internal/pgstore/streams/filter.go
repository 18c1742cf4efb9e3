package streams

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/internal/row"
)

// ParseFilter parses the text of a filter as written by row.Filter.Text. It returns nil for an empty text.
func ParseFilter(text string) (*row.Filter, error) {
	if text == "" {
		return nil, nil
	}
	f := new(row.Filter)
	if err := json.Unmarshal([]byte(text), f); err != nil {
		return nil, fmt.Errorf("parse stored filter %q: %w", text, err)
	}
	return f, nil
}

// condition builds an SQL condition and its arguments. Text from callers is always bound, so it never becomes SQL.
type condition struct {
	sql  strings.Builder
	args []any
}

func (c *condition) write(text string) { c.sql.WriteString(text) }

// bind adds v to the arguments and returns the parameter that refers to it.
func (c *condition) bind(v any) string {
	c.args = append(c.args, v)
	return "$" + strconv.Itoa(len(c.args))
}

// all returns the arguments of a statement. Its plan is made for them, and is not kept.
func (c *condition) all() []any { return append([]any{pgsql.Replan}, c.args...) }

// eventKey is an event's key. A missing key counts as empty.
const eventKey = `coalesce(key, '')`

// filter writes the condition that an event matches f. It agrees with row.Filter.Passes: keys have the collation "C",
// and starts_with has no wildcards.
func (c *condition) filter(f row.Filter) {
	switch f.Op {
	case row.KeyIs:
		c.write(eventKey + " = " + c.bind(f.Key))
	case row.KeyPrefix:
		c.write("starts_with(" + eventKey + ", " + c.bind(f.Key) + ")")
	case row.And:
		c.join(" AND ", "true", f.Of)
	case row.Or:
		c.join(" OR ", "false", f.Of)
	default: // a later version's operator matches nothing
		c.write("false")
	}
}

// join writes the filters of, joined by the operator word, or none if there are no filters. The server reads a chain of
// one operator as a list, so its depth does not grow.
func (c *condition) join(word, none string, of []row.Filter) {
	if len(of) == 0 {
		c.write(none)
		return
	}
	c.write("(")
	for i, f := range of {
		if i > 0 {
			c.write(word)
		}
		c.filter(f)
	}
	c.write(")")
}

// within writes the FROM clause and the condition for the events of the selection above after and at most through. order
// is the order of the index that should serve them. A comparison of rows fits no index but event_topic, and a topic with
// an operator fits no index but the primary key.
func (c *condition) within(s row.Selection, after, through int64) (order string) {
	if prefix, ok := strings.CutSuffix(s.Topic, "*"); ok {
		c.write(` FROM honker.event WHERE "offset" > ` + c.bind(after) + ` AND "offset" <= ` + c.bind(through))
		if prefix != "" {
			c.write(` AND starts_with(topic || '', ` + c.bind(prefix) + `)`)
		}
		order = `"offset"`
	} else {
		topic := c.bind(s.Topic)
		c.write(` FROM honker.event WHERE (topic, "offset") > (` + topic + `, ` + c.bind(after) + `) AND (topic, "offset") <= (` +
			topic + `, ` + c.bind(through) + `)`)
		order = `topic, "offset"`
	}
	if s.Filter != nil {
		c.write(" AND ")
		c.filter(*s.Filter)
	}
	return order
}
