package sqlfunc

import (
	"database/sql/driver"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"
)

// param is one parameter of a function. A value of another type is an error, as with
// honker's own functions.
type param struct {
	name     string
	class    string // as honker's errors spell it: Text, Integer
	nullable bool
}

var classes = map[string]string{"TEXT": "Text", "INTEGER": "Integer"}

// parse reads a signature. It panics on a wrong one, since all are constants of this package.
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

// check returns honker's error for the first argument that does not fit.
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

// The accessors rely on check: another type would panic.
func (c call) text(i int) string   { return c.args[i].(string) }
func (c call) integer(i int) int64 { return c.args[i].(int64) }
func (c call) given(i int) bool    { return c.args[i] != nil }
func (c call) now() int64          { return c.time.Unix() }

// in is the second that lies seconds after now. It stops at the last second there is,
// where a sum would overflow into the past.
func (c call) in(seconds int64) int64 {
	if now := c.now(); seconds <= math.MaxInt64-now {
		return now + seconds
	}
	return math.MaxInt64
}

// count makes an SQL value of a number of rows.
func count(n int, err error) (driver.Value, error) { return int64(n), err }

// done makes an SQL value of a bool, which is 1 or 0.
func done(ok bool, err error) (driver.Value, error) {
	if ok {
		return int64(1), err
	}
	return int64(0), err
}
