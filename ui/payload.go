package ui

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/seal"
)

// Bounds of a text on a page.
const (
	shortText = 4 << 10
	longText  = 64 << 10
)

// payload is a job's arguments, or what else is stored as JSON, as it is shown.
type payload struct {
	Text   string
	Cut    bool   // there is more
	Hidden bool   // by Options.Redact
	Sealed string // the key that it is sealed with, where it is not opened
	Bytes  int    // as stored
	Line   string // the beginning, on one line
}

// payloadOf hides what Redact hides, and lays out the rest with numbers and strings as they are written.
func (c *call) payloadOf(queue string, stored json.RawMessage, limit int) payload {
	p := payload{Bytes: len(stored)}
	if c.h.opts.Redact != nil {
		if stored = c.h.opts.Redact(queue, stored); stored == nil {
			p.Hidden = true
			return p
		}
	}
	p.Line = cut(120, strings.Join(strings.Fields(string(stored[:min(len(stored), 400)])), " "))
	p.Text, p.Cut = layOut(stored, limit)
	return p
}

// arguments are those of a job, opened by the codec of the DB if Authorize allows that.
func (c *call) arguments(j *honker.JobInfo, limit int) payload {
	opened, err := honker.Args[rawJSON](j)
	switch {
	case err != nil, bytes.Equal(opened, j.Payload), !c.can("unseal", j.Queue):
		return c.stored(j, limit)
	}
	return c.payloadOf(j.Queue, opened, limit)
}

// stored are the arguments of a job as they are in the file. Ciphertext is of no use to a reader.
func (c *call) stored(j *honker.JobInfo, limit int) payload {
	if key, sealed := seal.KeyOf(j.Payload); sealed {
		return payload{Sealed: cut(80, key), Bytes: len(j.Payload)}
	}
	return c.payloadOf(j.Queue, j.Payload, limit)
}

// layOut writes JSON with line breaks, up to limit bytes. What is no JSON stays as it is. It does not
// decode: a number that no float holds, an escape and the order of names are shown as they are stored.
func layOut(stored json.RawMessage, limit int) (text string, more bool) {
	if !json.Valid(stored) {
		return clip(string(stored), limit)
	}
	w := jsonWriter{limit: limit}
	for i := 0; i < len(stored) && w.out.Len() <= limit; i++ {
		i = w.next(stored, i)
	}
	return clip(w.out.String(), limit)
}

func clip(s string, limit int) (string, bool) {
	if len(s) <= limit {
		return strings.ToValidUTF8(s, "�"), false
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return strings.ToValidUTF8(s[:limit], "�"), true
}

type jsonWriter struct {
	out   strings.Builder
	depth int
	limit int
}

// next writes the token at i of valid JSON and returns where it ends.
func (w *jsonWriter) next(s []byte, i int) int {
	switch c := s[i]; c {
	case ' ', '\t', '\n', '\r':
	case '{', '[':
		w.out.WriteByte(c)
		if end := skipSpace(s, i+1); s[end] == c+2 { // ] and } are two after [ and {
			w.out.WriteByte(c + 2)
			return end
		}
		w.depth++
		w.line()
	case '}', ']':
		w.depth--
		w.line()
		w.out.WriteByte(c)
	case ',':
		w.out.WriteByte(c)
		w.line()
	case ':':
		w.out.WriteString(": ")
	case '"':
		end := endOfString(s, i)
		w.out.Write(s[i : end+1])
		return end
	default:
		w.out.WriteByte(c)
	}
	return i
}

// line begins a line. Nesting beyond reason is not indented any further.
func (w *jsonWriter) line() {
	w.out.WriteByte('\n')
	for range min(w.depth, 32) {
		w.out.WriteString("  ")
	}
}

func skipSpace(s []byte, i int) int {
	for i < len(s) && strings.IndexByte(" \t\n\r", s[i]) >= 0 {
		i++
	}
	return i
}

func endOfString(s []byte, i int) int {
	for i++; s[i] != '"'; i++ {
		if s[i] == '\\' {
			i++
		}
	}
	return i
}
