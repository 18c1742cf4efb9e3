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
	"brief":    brief,
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

// layouts maps the kinds of times to their formats. The page's script has the same kinds and shows them in the
// operator's time zone.
var layouts = map[string]string{"at": "2006-01-02 15:04:05", "clock": "15:04", "second": "15:04:05", "day": "Jan 2 15:04"}

// instant returns a time element of the given kind, which shows t in UTC unless the script replaces the text.
func instant(t time.Time, kind string) template.HTML {
	if t.IsZero() {
		return `<span class="none">–</span>`
	}
	t = t.UTC()
	return template.HTML(fmt.Sprintf(`<time datetime="%s" data-as="%s">%s</time>`, t.Format(time.RFC3339Nano), kind, t.Format(layouts[kind])))
}

func stamp(t time.Time) template.HTML { return instant(t, "at") }

// brief formats a number in at most four characters, such as "7.5k".
func brief(n int64) string {
	for _, unit := range []struct {
		size int64
		name string
	}{{1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if n < unit.size {
			continue
		}
		if n < 10*unit.size && n%unit.size >= unit.size/10 {
			return fmt.Sprintf("%d.%d%s", n/unit.size, n%unit.size*10/unit.size, unit.name)
		}
		return fmt.Sprintf("%d%s", n/unit.size, unit.name)
	}
	return fmt.Sprint(n)
}

// perSecond formats a rate with two significant digits, such as "0.4" or "31".
func perSecond(rate float64) string {
	switch {
	case rate == 0:
		return "0"
	case rate < 0.05:
		return "<0.1"
	case rate < 9.95:
		return strings.TrimSuffix(fmt.Sprintf("%.1f", rate), ".0")
	}
	return num(int64(rate + 0.5))
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
	if strings.HasSuffix(word, "s") {
		return text + " " + word + "es"
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
