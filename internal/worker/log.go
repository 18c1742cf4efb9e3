package worker

import (
	"bytes"
	"strings"
	"sync"
)

// maxLog bounds what is kept of the log of one attempt.
const maxLog = 64 << 10

// dropped is the first line of a log of which the beginning was dropped.
const dropped = "… earlier lines were dropped\n"

// Log is what a handler has logged in one attempt: the last lines of it. It is safe for concurrent use.
type Log struct {
	mu   sync.Mutex
	text []byte
	cut  bool // there was more before
}

// Log returns the log of the attempt, which begins with the first call.
func (c *Claim) Log() *Log {
	if l := c.log.Load(); l != nil {
		return l
	}
	c.log.CompareAndSwap(nil, new(Log))
	return c.log.Load()
}

// Write implements io.Writer, of whole lines. It never fails.
func (l *Log) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, line...)
	if len(l.text) > 2*maxLog { // seldom, so that each byte is moved once
		l.trim()
	}
	return len(line), nil
}

// trim drops the lines before the last ones that fit; of a line that does not fit, its beginning.
func (l *Log) trim() {
	const room = maxLog - len(dropped)
	if len(l.text) <= maxLog && !l.cut || len(l.text) <= room {
		return
	}
	rest := l.text[len(l.text)-room:]
	if i := bytes.IndexByte(rest, '\n'); i >= 0 && i+1 < len(rest) {
		rest = rest[i+1:]
	}
	l.text, l.cut = append(l.text[:0], rest...), true
}

// String returns the log as the file has it; "" for a nil Log.
func (l *Log) String() string {
	if l == nil {
		return ""
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.trim()
	text := string(l.text)
	if l.cut {
		text = dropped + text
	}
	return strings.ToValidUTF8(strings.ReplaceAll(text, "\x00", "\uFFFD"), "")
}
