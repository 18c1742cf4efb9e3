package cron

import (
	"fmt"
	"strings"
	"unicode"
)

var rustEscapes = map[rune]string{'\x00': `\0`, '\t': `\t`, '\n': `\n`, '\r': `\r`, '"': `\"`, '\\': `\\`}

// combining joins the character before it, so Rust does not print it on its own.
var combining = []*unicode.RangeTable{unicode.Mn, unicode.Me, unicode.Other_Grapheme_Extend}

// quote is text as Rust's {:?} prints it. Go's %q escapes other characters.
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
