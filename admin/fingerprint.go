package admin

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"
)

// varying lists patterns for the variable parts of error messages, in the order they're replaced. A
// pattern is skipped if the text contains none of the bytes in its has field. This check is about 100
// times faster than trying a pattern that doesn't match.
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
	{"xX", regexp.MustCompile(`(?i)\b0x[0-9a-f]+\b`), "#"},
	{digits, regexp.MustCompile(`(?i)\b[0-9a-f]*[0-9][0-9a-f]{7,}\b|\b[0-9a-f]{7,}[0-9][0-9a-f]*\b`), "#"},
	{digits, regexp.MustCompile(`\d+([.,:]\d+)*`), "#"},
	{" \t\n\f\r", regexp.MustCompile(`\s+`), " "},
}

const digits = "0123456789"

// maxKind is how many bytes of an error a fingerprint covers.
const maxKind = 1024

// kindOf returns the first line of an error with its variable parts replaced.
func kindOf(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	line = strings.ToValidUTF8(line[:min(len(line), maxKind)], "")
	for _, v := range varying {
		if !strings.ContainsAny(line, v.has) {
			continue
		}
		line = v.pattern.ReplaceAllLiteralString(line, v.by)
	}
	return strings.TrimSpace(line)
}

// fingerprint returns a 64-bit hash of an error's kind in hexadecimal.
func fingerprint(text string) string {
	sum := sha256.Sum256([]byte(kindOf(text)))
	return hex.EncodeToString(sum[:8])
}
