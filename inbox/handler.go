package inbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/worker"
)

// Handler returns an http.Handler that verifies a request, then records and handles its message in a
// single transaction. It responds with
//
//   - 204 after the commit, or if the message was already recorded;
//   - 401 for [ErrSignature] and [ErrTimestamp], which a relay retries, because a new secret or
//     a corrected clock may resolve them;
//   - 400 for [ErrID], and 422 with the error text if h returns a [honker.Reject]; a relay turns the
//     message into a dead letter;
//   - 413 for [ErrTooLarge], 405 for a method other than POST, 408 for an incomplete body;
//   - 503 with Retry-After if the writer is not free within BusyTimeout, if the DB is closed, or if h
//     returns a [honker.RetryAfter] or a [honker.Snooze];
//   - 500 for any other error from h, whose text is only logged.
//
// Any response other than 204 means that nothing was changed. Such a response is logged and reported
// to Observer.Refused. If h panics, nothing is changed, and the panic propagates to the server. h's
// ctx ends with the request. Handler does not limit the time for reading the body; set
// http.Server.ReadTimeout. Handler panics if h is nil.
func (in *Inbox) Handler(h HandlerFunc) http.Handler {
	if h == nil {
		panic("inbox: nil handler")
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m, refused := in.read(w, r)
		if refused == nil {
			_, err := in.Receive(r.Context(), m, h)
			refused = refusalOf(err)
		}
		if refused == nil {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		in.refuse(w, r, m, refused)
	})
}

// refusal is a response other than 2xx.
type refusal struct {
	status     int
	err        error
	text       string        // body of the response
	retryAfter time.Duration // Retry-After header; none if 0
}

// read reads and verifies the message of a request.
func (in *Inbox) read(w http.ResponseWriter, r *http.Request) (*Message, *refusal) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		return nil, refuse(http.StatusMethodNotAllowed, fmt.Errorf("method %.32q is not allowed; use POST", r.Method))
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, in.opts.MaxBody))
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return nil, refuse(http.StatusRequestEntityTooLarge, fmt.Errorf("%w: the maximum is %d bytes (Options.MaxBody)", ErrTooLarge, in.opts.MaxBody))
	}
	if err != nil {
		return nil, refuse(http.StatusRequestTimeout, fmt.Errorf("read the body: %w", err))
	}
	m, err := in.Verify(r.Header, body)
	switch {
	case errors.Is(err, ErrID):
		return nil, refuse(http.StatusBadRequest, err)
	case err != nil:
		return nil, refuse(http.StatusUnauthorized, err)
	}
	return m, nil
}

// refuse returns a refusal with err's text.
func refuse(status int, err error) *refusal {
	return &refusal{status: status, err: err, text: err.Error()}
}

// busyPause is the Retry-After value sent if the database is busy or closed.
const busyPause = time.Second

// refusalOf returns the response for an error of Receive. It returns nil if err is nil.
func refusalOf(err error) *refusal {
	if err == nil {
		return nil
	}
	var d *worker.Directive
	switch {
	case errors.As(err, &d) && d.Outcome == worker.Died:
		return &refusal{status: http.StatusUnprocessableEntity, err: err, text: engine.Describe(d)}
	case d != nil:
		return &refusal{status: http.StatusServiceUnavailable, err: err, text: "try again later", retryAfter: max(d.Delay, time.Second)}
	case errors.Is(err, honker.ErrBusy), errors.Is(err, honker.ErrClosed),
		errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return &refusal{status: http.StatusServiceUnavailable, err: err, text: "try again later", retryAfter: busyPause}
	}
	return &refusal{status: http.StatusInternalServerError, err: err, text: "the message was not handled"}
}

func (in *Inbox) refuse(w http.ResponseWriter, r *http.Request, m *Message, no *refusal) {
	told := Refused{Source: in.opts.Source, Status: no.status, Err: no.err}
	if m != nil {
		told.ID = m.ID
	}
	in.engine.Logger.Warn("honker: inbox: a request was refused",
		"source", told.Source, "id", told.ID, "remote", r.RemoteAddr, "status", no.status, "error", engine.Describe(no.err))
	in.opts.Observer.Refused(told)
	if no.retryAfter > 0 {
		w.Header().Set("Retry-After", strconv.FormatInt(engine.Seconds(no.retryAfter), 10))
	}
	http.Error(w, no.text, no.status)
}
