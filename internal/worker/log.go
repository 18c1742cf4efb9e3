package worker

import (
	"bytes"
	"strings"
	"sync"
)

// maxLog is the maximum size of an attempt's log in bytes.
const maxLog = 64 << 10

// dropped is the first line of a log whose beginning was dropped.
const dropped = "… earlier lines were dropped\n"

// Log holds the last lines that a handler has logged in one attempt. It is safe for concurrent use.
type Log struct {
	mu   sync.Mutex
	text []byte
	cut  bool // earlier lines were dropped
}

// Log returns the log of the attempt. The first call creates it.
func (c *Claim) Log() *Log {
	if l := c.log.Load(); l != nil {
		return l
	}
	c.log.CompareAndSwap(nil, new(Log))
	return c.log.Load()
}

// Write implements io.Writer. Each call should write whole lines. It never fails.
func (l *Log) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, line...)
	if len(l.text) > 2*maxLog { // rarely, so that each byte is moved about once
		l.trim()
	}
	return len(line), nil
}

// trim drops all but the last lines that fit. If a single line does not fit, trim keeps its end.
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

// String returns the log as it is stored in the file, or "" for a nil Log.
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
