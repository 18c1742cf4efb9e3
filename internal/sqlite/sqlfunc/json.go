package sqlfunc

import (
	"fmt"
	"strconv"
)

// The JSON is byte-for-byte the same as that of honker's own functions: compact, with keys in
// alphabetical order and only the necessary escapes. encoding/json cannot write it, because it
// always escapes U+2028.

// member is a member of a JSON object.
type member struct {
	key   string
	value any // nil, bool, int64 or string
}

// array returns a JSON array with an object for each row.
func array[T any](r []T, one func(T) []member) string {
	b := []byte{'['}
	for i, row := range r {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendObject(b, one(row))
	}
	return string(append(b, ']'))
}

func appendObject(b []byte, members []member) []byte {
	b = append(b, '{')
	for i, m := range members {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendString(b, m.key), ':')
		b = appendValue(b, m.value)
	}
	return append(b, '}')
}

func appendValue(b []byte, v any) []byte {
	switch v := v.(type) {
	case bool:
		return strconv.AppendBool(b, v)
	case int64:
		return strconv.AppendInt(b, v, 10)
	case string:
		return appendString(b, v)
	}
	return append(b, "null"...)
}

// escapes maps characters to their short escapes. Other control characters become \u00XX.
var escapes = map[byte]string{'"': `\"`, '\\': `\\`, '\b': `\b`, '\f': `\f`, '\n': `\n`, '\r': `\r`, '\t': `\t`}

func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	from := 0
	for i := range len(s) {
		if s[i] >= ' ' && s[i] != '"' && s[i] != '\\' {
			continue
		}
		b = append(b, s[from:i]...)
		from = i + 1
		if letter := escapes[s[i]]; letter != "" {
			b = append(b, letter...)
		} else {
			b = fmt.Appendf(b, `\u%04x`, s[i])
		}
	}
	return append(append(b, s[from:]...), '"')
}
