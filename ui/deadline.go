package ui

import (
	"net/http"
	"time"
)

// deadlineWriter sets a new write deadline before each write. Long responses need it because the server's
// WriteTimeout applies to the whole response.
type deadlineWriter struct {
	w     http.ResponseWriter
	began bool
}

func (d *deadlineWriter) Write(b []byte) (int, error) {
	d.began = true
	extend(d.w, streamWrite)
	return d.w.Write(b)
}

// bodyTime is the maximum time for reading a request body.
const bodyTime = 10 * time.Second

// limitBody sets a read deadline for the request body if the server supports it. If there is no body, limitBody
// does nothing, because the deadline would end an event stream.
func limitBody(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength != 0 {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTime))
	}
}

// bodyRead clears the deadline set by limitBody. This is necessary because the server keeps reading to detect a
// closed connection, and a verb may run for longer than bodyTime.
func bodyRead(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
}

// extend sets the response's write deadline to by from now. It has no effect if the server does not support write
// deadlines.
func extend(w http.ResponseWriter, by time.Duration) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(by))
}
