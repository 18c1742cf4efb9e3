package ui

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/seal"
)

// Maximum lengths of text on a page, in bytes.
const (
	shortText = 4 << 10
	longText  = 64 << 10
)

// payload is JSON text, such as a job's arguments, prepared for display.
type payload struct {
	Text   string
	Cut    bool   // whether Text is truncated
	Hidden bool   // hidden by Options.Redact
	Sealed string // key ID if the payload is sealed and was not opened
	Bytes  int    // stored size in bytes
	JSON   bool   // whether Text is JSON as it was stored, or decoded by the DB's codec if Opened is set
	Opened bool
	Line   string // beginning of the payload on a single line
}

// payloadOf applies Options.Redact to stored and formats the result.
func (c *call) payloadOf(queue string, stored json.RawMessage, limit int) payload {
	p := payload{Bytes: len(stored)}
	if c.h.opts.Redact != nil {
		if stored = c.h.opts.Redact(queue, stored); stored == nil {
			p.Hidden = true
			return p
		}
	}
	p.Line = cut(120, strings.Join(strings.Fields(string(stored[:min(len(stored), 400)])), " "))
	p.JSON = json.Valid(stored)
	p.Text, p.Cut = layOut(stored, limit)
	return p
}

// arguments returns a job's arguments. Encrypted arguments are decoded if Authorize allows the verb "unseal".
func (c *call) arguments(j *honker.JobInfo, limit int) payload {
	opened, err := honker.Args[rawJSON](j)
	switch {
	case err != nil, bytes.Equal(opened, j.Payload), !c.can("unseal", j.Queue):
		return c.stored(j, limit)
	}
	p := c.payloadOf(j.Queue, opened, limit)
	p.Opened = true
	return p
}

// stored returns a job's arguments without decoding them. For sealed arguments it returns only the key ID and the
// size, because ciphertext is useless to operators.
func (c *call) stored(j *honker.JobInfo, limit int) payload {
	if key, sealed := seal.KeyOf(j.Payload); sealed {
		return payload{Sealed: cut(80, key), Bytes: len(j.Payload)}
	}
	return c.payloadOf(j.Queue, j.Payload, limit)
}

// layOut formats JSON with line breaks, up to limit bytes. It returns other text unchanged. The JSON is not
// decoded, so large numbers, escapes and the order of keys appear as stored.
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

// next writes the token at index i of valid JSON and returns the index after the token.
func (w *jsonWriter) next(s []byte, i int) int {
	switch c := s[i]; c {
	case ' ', '\t', '\n', '\r':
	case '{', '[':
		w.out.WriteByte(c)
		if end := skipSpace(s, i+1); s[end] == c+2 { // ']' is '['+2 and '}' is '{'+2
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

// line starts a new line. Indentation is limited to 32 levels.
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
