package cron

import (
	"fmt"
	"strings"
	"unicode"
)

var rustEscapes = map[rune]string{'\x00': `\0`, '\t': `\t`, '\n': `\n`, '\r': `\r`, '"': `\"`, '\\': `\\`}

// combining contains characters that join the preceding character. Rust escapes them.
var combining = []*unicode.RangeTable{unicode.Mn, unicode.Me, unicode.Other_Grapheme_Extend}

// quote formats text like Rust's {:?}, which doesn't escape the same characters as Go's %q.
func quote(text string) string {
	var out strings.Builder
	for _, r := range text {
		switch escape, ok := rustEscapes[r]; {
		case ok:
			out.WriteString(escape)
		case !unicode.IsPrint(r) || unicode.In(r, combining...):
			fmt.Fprintf(&out, `\u{%x}`, r)
		default:
			out.WriteRune(r)
		}
	}
	return `"` + out.String() + `"`
}
