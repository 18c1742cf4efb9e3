package main

import (
	"log"
	"net/http"
	"time"
)

// Bounds of a client of a server, which may be reached from anywhere.
const (
	headerTime  = 10 * time.Second
	bodyTime    = 10 * time.Second
	answerTime  = time.Minute // a stream of package ui has a time of its own for each write
	idleTime    = time.Minute // between requests on a connection
	headerBytes = 64 << 10    // a page with a thousand selected jobs has 8 kB
)

// newServer returns a server of h that waits for no client without end.
func newServer(h http.Handler, logger *log.Logger) *http.Server {
	return &http.Server{
		Handler:           limitBody(h),
		ReadHeaderTimeout: headerTime,
		WriteTimeout:      answerTime,
		IdleTimeout:       idleTime,
		MaxHeaderBytes:    headerBytes,
		ErrorLog:          logger,
	}
}

// limitBody bounds the time in which the body of a request is read. It also bounds a refused request, the body of which the
// server still reads. http.Server.ReadTimeout would end the context of a stream, which has no body.
func limitBody(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTime)) // an http.Server's can
		}
		next.ServeHTTP(w, r)
	})
}
