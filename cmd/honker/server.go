package main

import (
	"log"
	"net/http"
	"time"
)

// These limits apply to clients, because the server may be reachable from anywhere.
const (
	headerTime  = 10 * time.Second
	bodyTime    = 10 * time.Second
	answerTime  = time.Minute // package ui sets its own deadline for each write of a stream
	idleTime    = time.Minute // between requests on a connection
	headerBytes = 64 << 10    // a page with a thousand jobs selected sends 8 KiB
)

// newServer returns a server for h that limits how long it waits for clients.
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

// limitBody limits the time for reading a request body. The limit also applies to rejected requests, because the
// server still reads their bodies. http.Server.ReadTimeout cannot be used: it would end the context of a stream,
// which has no body.
func limitBody(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTime)) // supported by http.Server
		}
		next.ServeHTTP(w, r)
	})
}
