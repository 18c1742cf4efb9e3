package main

import (
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// pipes is a net.Listener for in-memory connections.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if conn, ok := <-p; ok {
		return conn, nil
	}
	return nil, net.ErrClosed
}

func (p pipes) Close() error   { close(p); return nil }
func (p pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

// lastsFor serves h on a connection, writes request as a client, and reads until the server closes the connection. It
// returns the response and the time taken.
func lastsFor(t *testing.T, h http.Handler, request string) (answer string, took time.Duration) {
	t.Helper()
	server := newServer(h, log.New(io.Discard, "", 0))
	listener := make(pipes)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	client, other := net.Pipe()
	listener <- other
	began := time.Now()
	go io.WriteString(client, request)
	given := make(chan string, 1)
	go func() {
		all, _ := io.ReadAll(client)
		given <- string(all)
	}()
	select {
	case answer = <-given:
	case <-time.After(time.Hour):
	}
	took = time.Since(began)
	require.NoError(t, client.Close())
	require.NoError(t, server.Close())
	<-ended
	return answer, took
}

// The server gives up on clients that send a body slowly, send nothing, don't read, or send too large a header. This
// also applies to clients without access.
func TestServer_GivesUpOnSlowClients(t *testing.T) {
	refuses := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) })
	reads := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
	writes := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 1<<20)) })
	const slow = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\nx"
	for name, of := range map[string]struct {
		h       http.Handler
		request string
	}{
		"body that is read":   {reads, slow},
		"body of a refused":   {refuses, slow},
		"body in chunks":      {refuses, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nx"},
		"body of a GET":       {refuses, "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nx"},
		"header":              {reads, "GET / HTTP/1.1\r\nHost:"},
		"idle after a page":   {reads, "GET / HTTP/1.1\r\nHost: a\r\n\r\n"},
		"idle from the start": {reads, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, took := lastsFor(t, of.h, of.request)
				require.LessOrEqual(t, took, 2*time.Minute)
			})
		})
	}
	t.Run("answer that is not read", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			written := make(chan time.Duration, 1)
			began := time.Now()
			h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				writes(w, r)
				written <- time.Since(began)
			})
			server := newServer(h, log.New(io.Discard, "", 0))
			listener := make(pipes)
			ended := make(chan error, 1)
			go func() { ended <- server.Serve(listener) }()
			client, other := net.Pipe()
			listener <- other
			_, err := io.WriteString(client, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
			require.NoError(t, err)
			select {
			case took := <-written:
				require.LessOrEqual(t, took, 2*time.Minute)
			case <-time.After(time.Hour):
				t.Error("the handler still writes")
			}
			require.NoError(t, client.Close())
			require.NoError(t, server.Close())
			<-ended
		})
	})
	t.Run("large header", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			answer, _ := lastsFor(t, reads, fmt.Sprintf("GET / HTTP/1.1\r\nHost: a\r\nX: %s\r\n\r\n", strings.Repeat("x", 200<<10)))
			require.Contains(t, answer, "431 Request Header Fields Too Large")
		})
	})
}

// Limits on requests do not cut off a long response without a request body, such as the stream of an open page.
func TestServer_KeepsStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stream := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			control := http.NewResponseController(w)
			for n := range 10 {
				require.NoError(t, control.SetWriteDeadline(time.Now().Add(time.Second)))
				fmt.Fprintln(w, "tick", n)
				require.NoError(t, control.Flush())
				select {
				case <-time.After(time.Minute):
				case <-r.Context().Done():
					return
				}
			}
		})
		answer, took := lastsFor(t, stream, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
		require.Contains(t, answer, "tick 9")
		require.Equal(t, 10*time.Minute, took)
	})
}
