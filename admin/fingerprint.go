package admin

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"
)

// varying lists patterns for the variable parts of error messages, in the order they're replaced. If a pattern has a
// group, only the group is replaced. A pattern is skipped if the text contains none of the bytes in its has field. This
// check is about 100 times faster than trying a pattern that doesn't match.
var varying = []struct {
	has     string
	pattern *regexp.Regexp
	by      string
}{
	{"\"'`", regexp.MustCompile(`"[^"]*"|'[^']*'|` + "`[^`]*`"), `"…"`},
	{"-", regexp.MustCompile(`(?i)\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b`), "#"},
	{"@", regexp.MustCompile(`(?i)\b[\w.+-]+@[\w-]+(\.[\w-]+)+\b`), "@"},
	{":", regexp.MustCompile(`(?i)\b[a-z][a-z0-9+.-]*://[^\s,;)\]}>]+`), "://"},
	{"[.", regexp.MustCompile(`\[[0-9a-fA-F:]*:[0-9a-fA-F:.]*\](:\d+)?|\b\d{1,3}(\.\d{1,3}){3}(:\d+)?\b`), "#"},
	{`/\`, regexp.MustCompile(`[/\\](?P<var>[\w.@%+~=-]*\d[\w.@%+~=-]*)`), "#"},
	{"xX", regexp.MustCompile(`(?i)\b0x[0-9a-f]+\b`), "#"},
	{digits, regexp.MustCompile(`(?i)\d+([.,:]\d+)+|\b(\d[0-9a-f]{2,}|[0-9a-f]\d[0-9a-f]+|[0-9a-f]{2,}\d[0-9a-f]*)\b|\d+`), "#"},
}

const digits = "0123456789"

var space = regexp.MustCompile(`\s+`)

// maxKind is how many bytes of an error a fingerprint covers.
const maxKind = 1024

// ErrorPart is a part of the first line of an error.
type ErrorPart struct {
	Text   string
	Varies bool // errors of the same kind may differ in this part, such as a number

	by string // replaces the text in the kind
}

// ErrorParts returns the parts of the first line of an error. Errors that differ only in parts that vary are of the same
// kind and have the same [DeadGroup].Fingerprint. The line is cut after 1024 bytes, and space at its ends is removed.
func ErrorParts(text string) []ErrorPart {
	line := firstLine(text)
	parts := []ErrorPart{{Text: line, by: line}}
	for _, v := range varying {
		if !strings.ContainsAny(line, v.has) {
			continue
		}
		parts = split(parts, v.pattern, v.by)
	}
	return parts
}

// split separates the matches of a pattern from the parts that do not vary yet.
func split(parts []ErrorPart, pattern *regexp.Regexp, by string) (out []ErrorPart) {
	group := max(0, pattern.SubexpIndex("var"))
	for _, p := range parts {
		if p.Varies {
			out = append(out, p)
			continue
		}
		at := 0
		for _, m := range pattern.FindAllStringSubmatchIndex(p.Text, -1) {
			from, to := m[2*group], m[2*group+1]
			out = literal(out, p.Text[at:from])
			out = append(out, ErrorPart{Text: p.Text[from:to], Varies: true, by: by})
			at = to
		}
		out = literal(out, p.Text[at:])
	}
	return out
}

// literal appends text that does not vary.
func literal(parts []ErrorPart, text string) []ErrorPart {
	if text == "" {
		return parts
	}
	return append(parts, ErrorPart{Text: text, by: text})
}

// kindOf returns the first line of an error with its variable parts replaced.
func kindOf(text string) string {
	var kind strings.Builder
	for _, p := range ErrorParts(text) {
		kind.WriteString(p.by)
	}
	return strings.TrimSpace(space.ReplaceAllLiteralString(kind.String(), " "))
}

// fingerprint returns a 64-bit hash of an error's kind in hexadecimal.
func fingerprint(text string) string {
	sum := sha256.Sum256([]byte(kindOf(text)))
	return hex.EncodeToString(sum[:8])
}
