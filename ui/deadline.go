package ui

import (
	"net/http"
	"time"
)

// deadlineWriter gives each write of a long answer a time of its own: the server's WriteTimeout bounds
// the whole of it.
type deadlineWriter struct {
	w     http.ResponseWriter
	began bool
}

func (d *deadlineWriter) Write(b []byte) (int, error) {
	d.began = true
	extend(d.w, streamWrite)
	return d.w.Write(b)
}

// extend lets an answer take longer. A server that cannot do that keeps its own time.
func extend(w http.ResponseWriter, by time.Duration) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(by))
}
