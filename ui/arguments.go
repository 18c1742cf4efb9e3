package ui

import (
	"encoding/json"
	"html/template"
	"regexp"
	"strings"
)

// Limits on the linked values in a job's arguments.
const (
	maxLinked     = 200 // number of values
	longestLinked = 200 // bytes of a value and its path
)

// plainNumber matches numbers that every database writes as they are stored, so that a filter finds them.
var plainNumber = regexp.MustCompile(`^-?(0|[1-9][0-9]{0,14})(\.[0-9]{0,9}[1-9])?$`)

// linked returns laid out JSON as HTML, in which values of fields link to the jobs of the queue with the same value.
// Only fields of objects can be searched for, so elements of arrays have no links.
func (c *call) linked(p payload, queue string) template.HTML {
	w := fieldLinker{c: c, queue: queue, search: p.JSON && !p.Opened && c.h.opts.Redact == nil && !isNoText(queue)}
	lines := strings.Split(p.Text, "\n")
	for i, line := range lines {
		if i > 0 {
			w.out.WriteByte('\n')
		}
		if !p.JSON {
			w.text("", line)
			continue
		}
		w.line(line, p.Cut && i == len(lines)-1)
	}
	return template.HTML(w.out.String())
}

// fieldLinker writes lines of JSON as layOut has made them.
type fieldLinker struct {
	c      *call
	queue  string
	search bool
	path   []string // names of the enclosing fields; "" for an array
	field  string   // last name
	n      int      // number of links
	out    strings.Builder
}

func (w *fieldLinker) text(class, s string) {
	if class == "" || s == "" {
		w.out.WriteString(template.HTMLEscapeString(s))
		return
	}
	w.out.WriteString(`<span class="` + class + `">` + template.HTMLEscapeString(s) + `</span>`)
}

func (w *fieldLinker) line(line string, cut bool) {
	value := strings.TrimLeft(line, " ")
	w.text("", line[:len(line)-len(value)])
	w.field = ""
	if strings.HasPrefix(value, `"`) {
		if end := closingQuote(value); end > 0 && strings.HasPrefix(value[end:], `: `) {
			w.text("key", value[:end])
			w.text("", ": ")
			if json.Unmarshal([]byte(value[:end]), &w.field) != nil {
				w.field = ""
			}
			value = value[end+2:]
		}
	}
	w.value(value, cut)
}

// closingQuote returns the index after the string that s begins with, or 0 if the string does not end.
func closingQuote(s string) int {
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return 0
}

// value writes the rest of a line: a scalar or a bracket, and a comma.
func (w *fieldLinker) value(text string, cut bool) {
	bare := strings.TrimSuffix(text, ",")
	switch {
	case bare == "{":
		w.path = append(w.path, w.field)
	case bare == "[":
		w.path = append(w.path, "")
	case bare == "}" || bare == "]":
		w.path = w.path[:max(0, len(w.path)-1)]
	case !cut && w.scalar(bare):
		w.text("", text[len(bare):])
		return
	}
	w.text("", text)
}

// scalar writes a value with its link, and returns false if it has none.
func (w *fieldLinker) scalar(text string) bool {
	value := text
	isText := strings.HasPrefix(text, `"`)
	if isText && json.Unmarshal([]byte(text), &value) != nil || !isText && !plainNumber.MatchString(text) {
		return false
	}
	path, ok := w.where()
	if !w.search || !ok || w.n == maxLinked || value == "" || value != strings.TrimSpace(value) || len(path)+len(value) > longestLinked {
		return false
	}
	url := w.c.link("jobs", values("queue", w.queue, "where", path+"="+value))
	if url == "" {
		return false
	}
	w.n++
	w.out.WriteString(`<a class="value" href="` + template.HTMLEscapeString(url) + `" title="Jobs of the queue with this value">` + template.HTMLEscapeString(text) + `</a>`)
	return true
}

// where returns the field's path for a filter. ok is false if a filter cannot name the field.
func (w *fieldLinker) where() (path string, ok bool) {
	if w.field == "" || len(w.path) == 0 {
		return "", false
	}
	for _, name := range append(w.path[1:len(w.path):len(w.path)], w.field) {
		if name == "" || name != strings.TrimSpace(name) || strings.ContainsAny(name, ".=\"\\[]") {
			return "", false
		}
		if path != "" {
			path += "."
		}
		path += name
	}
	return path, true
}
