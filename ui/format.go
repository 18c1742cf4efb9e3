package ui

import (
	"fmt"
	"html/template"
	"strings"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
)

// functions holds the template functions that do not depend on the page.
var functions = template.FuncMap{
	"bind":     bind,
	"num":      num,
	"bytes":    admin.FormatSize,
	"span":     admin.FormatSpan,
	"measured": measured,
	"plural":   plural,
	"cut":      cut,
	"stamp":    stamp,
	"href":     href,
}

// href returns an href attribute for url, or nothing if url is empty. The caller must pass only URLs created by
// this handler, because html/template does not sanitize the result.
func href(url string) template.HTMLAttr {
	if url == "" {
		return ""
	}
	return template.HTMLAttr(`href="` + template.HTMLEscapeString(url) + `"`)
}

// num formats a count with commas as thousands separators.
func num(n any) string {
	switch n := n.(type) {
	case int:
		return honker.Count{N: int64(n)}.String()
	case int64:
		return honker.Count{N: n}.String()
	}
	return fmt.Sprint(n)
}

// measured formats a measured duration.
func measured(d time.Duration) string { return admin.FormatSpan(admin.RoundSpan(d)) }

func stamp(t time.Time) string {
	if t.IsZero() {
		return "–"
	}
	return t.UTC().Format("2006-01-02 15:04:05")
}

// plural formats a count and its noun, such as "1 job" or "2 jobs".
func plural(n any, word string) string {
	text := num(n)
	if text == "1" {
		return "1 " + word
	}
	if strings.HasSuffix(word, "y") {
		return text + " " + strings.TrimSuffix(word, "y") + "ies"
	}
	return text + " " + word + "s"
}

// cut returns at most the first limit bytes of s as valid UTF-8. It does not split a rune.
func cut(limit int, s string) string {
	if len(s) <= limit {
		return strings.ToValidUTF8(s, "�")
	}
	return strings.ToValidUTF8(s[:limit], "") + "…"
}
