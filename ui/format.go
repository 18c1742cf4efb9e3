package ui

import (
	"fmt"
	"html/template"
	"strconv"
	"strings"
	"time"

	"github.com/honker-go/honker"
)

// functions are the template functions that do not depend on the page.
var functions = template.FuncMap{
	"bind":   bind,
	"num":    num,
	"bytes":  size,
	"span":   span,
	"plural": plural,
	"cut":    cut,
	"stamp":  stamp,
	"href":   href,
}

// href returns the href attribute for url, or nothing if url is empty. The caller must pass only URLs made by this
// handler, because html/template does not check them again.
func href(url string) template.HTMLAttr {
	if url == "" {
		return ""
	}
	return template.HTMLAttr(`href="` + template.HTMLEscapeString(url) + `"`)
}

// num formats a count with commas between thousands.
func num(n any) string {
	switch n := n.(type) {
	case int:
		return honker.Count{N: int64(n)}.String()
	case int64:
		return honker.Count{N: n}.String()
	}
	return fmt.Sprint(n)
}

// size formats a number of bytes with a suitable unit.
func size(n int64) string {
	if n < 1024 {
		return strconv.FormatInt(n, 10) + " B"
	}
	value, unit := float64(n), ""
	for _, u := range []string{"kB", "MB", "GB", "TB"} {
		if value < 1024 {
			break
		}
		value, unit = value/1024, u
	}
	digits := 0
	if value < 10 {
		digits = 1
	}
	return strconv.FormatFloat(value, 'f', digits, 64) + " " + unit
}

// span formats a duration in its two largest units, such as 4m 12s.
func span(d time.Duration) string {
	if d < 0 {
		return "-" + span(-d)
	}
	switch {
	case d == 0:
		return "0s"
	case d < time.Millisecond:
		return strconv.FormatInt(d.Microseconds(), 10) + "µs"
	case d < time.Second:
		return strconv.FormatInt(d.Milliseconds(), 10) + "ms"
	case d < 10*time.Second && d%time.Second != 0:
		return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + "s"
	}
	return wholeSpan(d)
}

func wholeSpan(d time.Duration) string {
	s := int64(d / time.Second)
	two := func(a int64, unit string, b int64, less string) string {
		if b == 0 {
			return fmt.Sprintf("%d%s", a, unit)
		}
		return fmt.Sprintf("%d%s %d%s", a, unit, b, less)
	}
	switch {
	case s < 60:
		return fmt.Sprintf("%ds", s)
	case s < 3600:
		return two(s/60, "m", s%60, "s")
	case s < 24*3600:
		return two(s/3600, "h", s%3600/60, "m")
	}
	return two(s/86400, "d", s%86400/3600, "h")
}

// relative formats the distance of t from now. It must match the script, which updates these texts.
func relative(t, now time.Time, words bool) string {
	d := now.Sub(t)
	text := wholeSpan(d.Abs())
	switch {
	case !words:
		return text
	case d.Abs() < time.Second:
		return "now"
	case d < 0:
		return "in " + text
	}
	return text + " ago"
}

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

// cut returns the first limit bytes of s as valid UTF-8, without splitting a rune.
func cut(limit int, s string) string {
	if len(s) <= limit {
		return strings.ToValidUTF8(s, "�")
	}
	return strings.ToValidUTF8(s[:limit], "") + "…"
}
