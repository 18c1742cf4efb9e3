package ui

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net/http"

	"github.com/honker-go/honker/admin"
)

// Access describes the request that Options.Authorize must allow or deny.
type Access struct {
	// Verb is "look" for pages, "export" for downloading jobs, and "check" for checking the whole file. The
	// verbs that change the file are "requeue", "discard", "bury", "cancel", "run-now", "enqueue", "pause",
	// "resume", "limits", "retention", "seek", "delete-consumer", "delete-group", "redeliver",
	// "discard-event", "trigger", "pause-schedule", "resume-schedule", "break-lock", "requeue-relay",
	// "discard-relay", "break-relay", "signal-run", "cancel-run", "restart-run", "pause-actor", "resume-actor",
	// "stop-actor", "break-presence", "cancel-batch", "maintain" and "vacuum". "unseal" is for showing arguments decoded by honker.Options.Codec.
	Verb  string
	Write bool // whether the verb changes the file
	// Queue is the requested queue, or "" if the request may affect several queues or none.
	Queue  string
	Filter *admin.JobFilter // filter for job lists and for verbs on jobs; nil for other requests
	N      int64            // number of affected jobs shown to the operator before the request; 0 if no number was shown
}

// ErrLogin can be returned by Options.Authorize to respond with status 401, which makes the browser ask for a
// name and a password.
var ErrLogin = errors.New("a name and a password are required")

var (
	errNoAuthorize = errors.New("access is refused, because ui.Options.Authorize is not set. Use ui.Basic(user, password) to ask for a password, " +
		"ui.ReadOnly to let everybody look, or ui.AllowAll behind a handler that checks requests")
	errNoPassword = errors.New("ui.Basic was given an empty password and refuses all requests")
	errNoEnqueue  = errors.New("jobs can be enqueued by hand only if ui.Options.Enqueue is set")
	errLooksOnly  = errors.New("this dashboard is read-only")
)

// ReadOnly is an Authorize function that allows pages, downloads and checks. It denies changes and does not
// reveal arguments that are encrypted in the file.
func ReadOnly(_ *http.Request, a Access) error {
	if a.Write || a.Verb == "unseal" {
		return errLooksOnly
	}
	return nil
}

// AllowAll is an Authorize function that allows everything. Use it only if access to the handler is
// restricted in some other way.
func AllowAll(*http.Request, Access) error { return nil }

// Basic returns an Authorize function that allows everything to requests with the given user and password in
// HTTP basic authentication. Credentials are compared in constant time. If password is empty, all requests are
// denied, so an unset environment variable doesn't open up the dashboard. Basic authentication does not
// encrypt the password; use it only over HTTPS or on localhost.
func Basic(user, password string) func(*http.Request, Access) error {
	// ConstantTimeCompare returns early if the lengths differ. Comparing hashes avoids leaking the
	// length.
	wantUser, wantPassword := sha256.Sum256([]byte(user)), sha256.Sum256([]byte(password))
	return func(r *http.Request, _ Access) error {
		if password == "" {
			return errNoPassword
		}
		givenUser, givenPassword, _ := r.BasicAuth()
		hashUser, hashPassword := sha256.Sum256([]byte(givenUser)), sha256.Sum256([]byte(givenPassword))
		same := subtle.ConstantTimeCompare(hashUser[:], wantUser[:]) & subtle.ConstantTimeCompare(hashPassword[:], wantPassword[:])
		if same != 1 {
			return ErrLogin
		}
		return nil
	}
}

// authorize returns an error if the request is not allowed. All authorization checks must use it.
func (h *Handler) authorize(r *http.Request, a Access) error {
	switch {
	case h.opts.Authorize == nil:
		return errNoAuthorize
	case a.Write && h.opts.ReadOnly:
		return errLooksOnly
	}
	return h.opts.Authorize(r, a)
}

// can reports whether the page should offer a verb. Results are cached for the duration of the request.
func (c *call) can(verb, queue string) bool {
	key := [2]string{verb, queue}
	allowed, known := c.allowed[key]
	if !known {
		allowed = c.h.authorize(c.r, Access{Verb: verb, Write: c.h.routes[verb].write, Queue: queue}) == nil
		c.allowed[key] = allowed
	}
	return allowed
}
