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

// Handler returns an http.Handler that verifies a request, and records and handles its message
// in one transaction. It answers
//
//   - 204 once that is committed, and for a message that was recorded before,
//   - 401 for [ErrSignature] and [ErrTimestamp]: a secret that is being replaced, or a clock, may
//     come right, so a relay tries again,
//   - 400 for [ErrID], and 422 for an error of h that is a [honker.Reject], with its text: a relay
//     makes a dead letter of the message,
//   - 413 for [ErrTooLarge], 405 for a method that is not POST, 408 for a body that breaks off,
//   - 503 with Retry-After when the writer is not free within BusyTimeout, when the DB is closed,
//     and for an error of h that is a [honker.RetryAfter] or a [honker.Snooze],
//   - 500 for any other error of h. Its text goes to the log only.
//
// Whatever is not 204 has changed nothing. It is logged, and told to Observer.Refused. A panic of
// h goes on to the server, with nothing changed. The ctx of h ends with the request. The time
// that a body may take is up to the server (http.Server.ReadTimeout). A nil h panics.
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

// refusal is an answer other than 2xx.
type refusal struct {
	status     int
	err        error
	text       string        // for the sender
	retryAfter time.Duration // 0: not said
}

// read takes the message out of a request.
func (in *Inbox) read(w http.ResponseWriter, r *http.Request) (*Message, *refusal) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		return nil, refuse(http.StatusMethodNotAllowed, fmt.Errorf("method %.32q: use POST", r.Method))
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, in.opts.MaxBody))
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return nil, refuse(http.StatusRequestEntityTooLarge, fmt.Errorf("%w: at most %d bytes (Options.MaxBody)", ErrTooLarge, in.opts.MaxBody))
	}
	if err != nil {
		return nil, refuse(http.StatusRequestTimeout, fmt.Errorf("the body breaks off: %w", err))
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

// refuse is a refusal with the text of err.
func refuse(status int, err error) *refusal {
	return &refusal{status: status, err: err, text: err.Error()}
}

// busyPause is the Retry-After of a database that is busy or closed.
const busyPause = time.Second

// refusalOf returns the answer to a message with the error err, nil for none.
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
