package sqlfunc

import (
	"database/sql"
	"database/sql/driver"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/sqlite/store/rows"
)

// param is a function parameter. As in honker's own functions, an argument of a different type is an error, except
// that a REAL with an integral value is accepted as INTEGER.
type param struct {
	name     string
	class    string // Text or Integer, as spelled in honker's errors
	nullable bool
}

var classes = map[string]string{"TEXT": "Text", "INTEGER": "Integer"}

// parse parses a signature. It panics if the signature is invalid, since all signatures are constants in this
// package.
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

// accept converts the arguments in place to the signature's types. It returns an error, with
// honker's text, for the first argument that does not match.
func accept(params []param, args []driver.Value) (err error) {
	for i, p := range params {
		if real, ok := args[i].(float64); ok && p.class == "Integer" {
			if args[i], err = whole(real, i, p.name); err != nil {
				return err
			}
		}
		class := classOf(args[i])
		if class != p.class && !(class == "Null" && p.nullable) {
			return invalidf("invalid function parameter type %s at index %d (%s)", class, i, p.name)
		}
		if text, ok := args[i].(string); ok && !utf8.ValidString(text) {
			return invalidf("invalid UTF-8 at index %d (%s)", i, p.name)
		}
	}
	return nil
}

// invalid is the error for an invalid argument. It matches ErrInvalid, but has honker's text.
type invalid struct{ error }

func invalidf(format string, args ...any) error { return invalid{fmt.Errorf(format, args...)} }

// Is makes errors.Is match ErrInvalid.
func (invalid) Is(target error) bool { return target == engine.ErrInvalid }

// Unwrap returns the error with honker's text.
func (e invalid) Unwrap() error { return e.error }

// whole converts a REAL to an integer. Some drivers, including those for JavaScript, bind every number as REAL. It is
// an error if there is a fraction, because rounding would hide a mistake.
func whole(real float64, index int, name string) (int64, error) {
	switch {
	case math.Trunc(real) != real: // true for NaN too
		return 0, invalidf("%v is not a whole number at index %d (%s)", real, index, name)
	case real < math.MinInt64 || real >= -math.MinInt64:
		return 0, invalidf("%v is out of range at index %d (%s)", real, index, name)
	}
	return int64(real), nil
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

// text returns an argument as text. Like the other accessors, it panics unless accept has checked the types.
func (c call) text(i int) string   { return c.args[i].(string) }
func (c call) integer(i int) int64 { return c.args[i].(int64) }
func (c call) given(i int) bool    { return c.args[i] != nil }

// integerOrNull returns an argument for which NULL, rather than 0, means that there is no value.
func (c call) integerOrNull(i int) (n sql.NullInt64) {
	if c.given(i) {
		n = sql.NullInt64{Int64: c.integer(i), Valid: true}
	}
	return n
}

func (c call) now() int64 { return c.time.Unix() }

// in returns the Unix time that is seconds after now.
func (c call) in(seconds int64) int64 { return rows.After(c.now(), seconds) }

// count converts a row count to an SQL value.
func count(n int, err error) (driver.Value, error) { return int64(n), err }

// done converts a bool to the SQL value 1 or 0.
func done(ok bool, err error) (driver.Value, error) {
	if ok {
		return int64(1), err
	}
	return int64(0), err
}
