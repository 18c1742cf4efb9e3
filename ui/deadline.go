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

// bodyTime is how long the body of a request may take to come.
const bodyTime = 10 * time.Second

// limitBody bounds the time in which the body of a request is read. A server without read deadlines keeps its own
// time. A request without a body needs no bound: that of a stream must not end.
func limitBody(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength != 0 {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTime))
	}
}

// bodyRead takes the bound of limitBody back. The server notices by a read that the browser has gone, and a verb may
// work for longer than a body may take.
func bodyRead(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
}

// extend lets an answer take longer. A server that cannot do that keeps its own time.
func extend(w http.ResponseWriter, by time.Duration) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(by))
}
