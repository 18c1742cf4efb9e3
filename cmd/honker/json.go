package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/honker-go/honker"
)

// marshal encodes an API value as JSON. Struct fields keep their order, and their Go names are converted to
// snake_case. Times are in RFC 3339, or null if zero. Payloads are copied unchanged except for the escapes added by
// printable. Every line except the first starts with prefix. If indent is empty, the result is a single line.
func marshal(value any, prefix, indent string) ([]byte, error) {
	var compact bytes.Buffer
	if err := appendJSON(&compact, reflect.ValueOf(value)); err != nil {
		return nil, err
	}
	text := printable(compact.Bytes())
	if indent == "" {
		return text, nil
	}
	var b bytes.Buffer
	err := json.Indent(&b, text, prefix, indent)
	return b.Bytes(), err
}

// printable escapes characters in JSON that a terminal would act on: DEL, the C1 controls and marks that change the
// text direction. encoding/json and other bindings do not escape these characters. They occur only inside strings, so
// the decoded values don't change. Invalid UTF-8 is replaced with U+FFFD.
func printable(text []byte) []byte {
	safe := func(r rune) bool { return r == '\n' || r == '\t' || r == '\r' || r != utf8.RuneError && !unsafe(r) }
	if !bytes.ContainsFunc(text, func(r rune) bool { return !safe(r) }) {
		return text
	}
	out := make([]byte, 0, len(text)+len(text)/8)
	for _, r := range string(text) {
		switch {
		case safe(r), r == utf8.RuneError:
			out = utf8.AppendRune(out, r)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
	}
	return out
}

// printableLines is an io.Writer that applies printable to JSON Lines.
type printableLines struct {
	w    io.Writer
	line []byte // incomplete last line
}

// Write implements io.Writer.
func (p *printableLines) Write(b []byte) (int, error) {
	end := bytes.LastIndexByte(b, '\n') + 1
	if end > 0 {
		if _, err := p.w.Write(printable(append(p.line, b[:end]...))); err != nil {
			return 0, err
		}
		p.line = p.line[:0]
	}
	p.line = append(p.line, b[end:]...)
	return len(b), nil
}

func writeJSON(w io.Writer, value any, indent string) error {
	text, err := marshal(value, "", indent)
	if err != nil {
		return err
	}
	_, err = w.Write(append(text, '\n'))
	return err
}

func appendJSON(b *bytes.Buffer, v reflect.Value) error {
	if v.IsValid() {
		switch value := v.Interface().(type) {
		case time.Time:
			return appendTime(b, value)
		case time.Duration:
			return appendText(b, value.String())
		case json.RawMessage:
			return appendPayload(b, value)
		case error:
			return appendText(b, value.Error())
		}
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface, reflect.Invalid:
		if v.Kind() == reflect.Invalid || v.IsNil() {
			b.WriteString("null")
			return nil
		}
		return appendJSON(b, v.Elem())
	case reflect.Struct:
		return appendStruct(b, v)
	case reflect.Slice:
		return appendSlice(b, v)
	default:
		return appendValue(b, v.Interface())
	}
}

func appendTime(b *bytes.Buffer, t time.Time) error {
	if t.IsZero() {
		b.WriteString("null")
		return nil
	}
	return appendText(b, t.UTC().Format(time.RFC3339Nano))
}

// appendPayload copies JSON unchanged, so that numbers keep their digits. Other bindings may have stored text that
// isn't JSON; that is written as a JSON string.
func appendPayload(b *bytes.Buffer, p json.RawMessage) error {
	if json.Compact(b, p) == nil {
		return nil
	}
	return appendText(b, string(p))
}

// appendValue encodes value like encoding/json, but without HTML escaping.
func appendValue(b *bytes.Buffer, value any) error {
	enc := json.NewEncoder(b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(value); err != nil {
		return err
	}
	b.Truncate(b.Len() - 1) // the newline added by Encode
	return nil
}

func appendText(b *bytes.Buffer, text string) error { return appendValue(b, text) }

func appendSlice(b *bytes.Buffer, v reflect.Value) error {
	b.WriteByte('[')
	for i := range v.Len() {
		if i > 0 {
			b.WriteByte(',')
		}
		if err := appendJSON(b, v.Index(i)); err != nil {
			return err
		}
	}
	b.WriteByte(']')
	return nil
}

// appendStruct writes all exported fields, even if they are empty, so that programs can rely on them. A Count is
// written as its number. If a Count is only a lower bound, its name is listed in an extra field, at_least.
func appendStruct(b *bytes.Buffer, v reflect.Value) error {
	b.WriteByte('{')
	var bounds []string
	for i := range v.NumField() {
		if !v.Type().Field(i).IsExported() {
			continue
		}
		if b.Bytes()[b.Len()-1] != '{' {
			b.WriteByte(',')
		}
		name := snake(v.Type().Field(i).Name)
		fmt.Fprintf(b, "%q:", name)
		field := v.Field(i)
		if c, ok := field.Interface().(honker.Count); ok {
			if c.More {
				bounds = append(bounds, name)
			}
			field = reflect.ValueOf(c.N)
		}
		if err := appendJSON(b, field); err != nil {
			return err
		}
	}
	if bounds != nil {
		b.WriteString(`,"at_least":`)
		if err := appendSlice(b, reflect.ValueOf(bounds)); err != nil {
			return err
		}
	}
	b.WriteByte('}')
	return nil
}

// snake converts WorkerID to worker_id, IDs to ids, and SQL to sql.
func snake(name string) string {
	letters := []rune(strings.ReplaceAll(name, "IDs", "Ids"))
	var b strings.Builder
	for i, r := range letters {
		begins := i > 0 && unicode.IsUpper(r) &&
			(unicode.IsLower(letters[i-1]) || i+1 < len(letters) && unicode.IsLower(letters[i+1]))
		if begins {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}
