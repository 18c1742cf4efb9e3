package ui

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net/http"

	"github.com/honker-go/honker/admin"
)

// Access describes a request for Options.Authorize.
type Access struct {
	// Verb is "look" for pages, "export" for a download of jobs, and "check" for a check of the whole file.
	// The verbs that change the file are "requeue", "discard", "cancel", "run-now", "enqueue", "pause",
	// "resume", "limits", "retention", "seek", "delete-consumer", "delete-group", "redeliver",
	// "discard-event", "trigger", "pause-schedule", "resume-schedule", "break-lock", "cancel-batch" and
	// "maintain". "unseal" asks whether a page may show arguments decoded by honker.Options.Codec.
	Verb  string
	Write bool // whether the verb changes the file
	// Queue is the queue of the request, or "" if it may concern several queues or none.
	Queue  string
	Filter *admin.JobFilter // filter of a job list or of a verb on jobs; nil for other requests
	N      int64            // number of affected jobs that the page has shown to the operator; 0 if it has shown none
}

// ErrLogin may be returned by Options.Authorize. The response is then 401, and the browser asks for a name and
// a password.
var ErrLogin = errors.New("a name and a password are required")

var (
	errNoAuthorize = errors.New("access is refused, because ui.Options.Authorize is not set. Use ui.Basic(user, password) to ask for a password, " +
		"ui.ReadOnly to let everybody look, or ui.AllowAll behind a handler that checks requests")
	errNoPassword = errors.New("ui.Basic was given an empty password and refuses all requests")
	errNoEnqueue  = errors.New("jobs can be enqueued by hand only if ui.Options.Enqueue is set")
	errLooksOnly  = errors.New("this dashboard is read-only")
)

// ReadOnly is an Authorize function that allows pages, downloads and checks. It refuses changes, and it does not
// show arguments that are encrypted in the file.
func ReadOnly(_ *http.Request, a Access) error {
	if a.Write || a.Verb == "unseal" {
		return errLooksOnly
	}
	return nil
}

// AllowAll is an Authorize function that allows everything. Use it only if the handler is protected by other
// means.
func AllowAll(*http.Request, Access) error { return nil }

// Basic returns an Authorize function that requires user and password by HTTP basic authentication and then
// allows everything. They are compared in constant time. If password is empty, all requests are refused, so an
// unset environment variable does not open the dashboard. Basic authentication does not encrypt the password;
// use it over HTTPS or on localhost.
func Basic(user, password string) func(*http.Request, Access) error {
	// ConstantTimeCompare returns early for different lengths. Hashing hides the lengths.
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

// authorize decides whether a request is allowed. All checks go through it.
func (h *Handler) authorize(r *http.Request, a Access) error {
	switch {
	case h.opts.Authorize == nil:
		return errNoAuthorize
	case a.Write && h.opts.ReadOnly:
		return errLooksOnly
	}
	return h.opts.Authorize(r, a)
}

// can reports whether the page should offer a verb. Decisions are cached for the duration of the request.
func (c *call) can(verb, queue string) bool {
	key := [2]string{verb, queue}
	allowed, known := c.allowed[key]
	if !known {
		allowed = c.h.authorize(c.r, Access{Verb: verb, Write: c.h.routes[verb].write, Queue: queue}) == nil
		c.allowed[key] = allowed
	}
	return allowed
}
