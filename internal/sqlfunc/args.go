package sqlfunc

import (
	"database/sql/driver"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"
)

// param is what a function accepts in one place: nothing is converted.
type param struct {
	name     string
	class    string // as honker's errors spell it: Text, Integer
	nullable bool
}

var classes = map[string]string{"TEXT": "Text", "INTEGER": "Integer"}

// parse reads a signature, a constant of this package.
func parse(signature string) []param {
	var out []param
	for _, part := range strings.FieldsFunc(signature, func(r rune) bool { return r == ',' }) {
		name, class, _ := strings.Cut(strings.TrimSpace(part), " ")
		bare, nullable := strings.CutSuffix(class, "?")
		if classes[bare] == "" {
			panic("sqlfunc: signature " + signature)
		}
		out = append(out, param{name, classes[bare], nullable})
	}
	return out
}

func check(params []param, args []driver.Value) error {
	for i, p := range params {
		class := classOf(args[i])
		if class != p.class && !(class == "Null" && p.nullable) {
			return fmt.Errorf("invalid function parameter type %s at index %d (%s)", class, i, p.name)
		}
		if text, ok := args[i].(string); ok && !utf8.ValidString(text) {
			return fmt.Errorf("invalid UTF-8 at index %d (%s)", i, p.name)
		}
	}
	return nil
}

func classOf(v driver.Value) string {
	switch v.(type) {
	case nil:
		return "Null"
	case int64:
		return "Integer"
	case float64:
		return "Real"
	case string:
		return "Text"
	}
	return "Blob"
}

func (c call) text(i int) string   { return c.args[i].(string) }
func (c call) integer(i int) int64 { return c.args[i].(int64) }
func (c call) given(i int) bool    { return c.args[i] != nil }
func (c call) now() int64          { return c.time.Unix() }

// in is the second that lies seconds after now, or the last one there is.
func (c call) in(seconds int64) int64 {
	if now := c.now(); seconds <= math.MaxInt64-now {
		return now + seconds
	}
	return math.MaxInt64
}

// count is a result of the store as SQL has it.
func count(n int, err error) (driver.Value, error) { return int64(n), err }

// done is 1 for true.
func done(ok bool, err error) (driver.Value, error) {
	if ok {
		return int64(1), err
	}
	return int64(0), err
}
