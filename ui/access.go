package ui

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net/http"

	"github.com/honker-go/honker/admin"
)

// Access is what a request is for.
type Access struct {
	// Verb is "look" for pages, "export" for a download of jobs, "check" for a check of the whole file, or
	// what the request is going to change: "requeue", "discard", "cancel", "run-now", "enqueue", "pause",
	// "resume", "limits", "retention", "seek", "delete-consumer", "delete-group", "redeliver",
	// "discard-event", "trigger", "pause-schedule", "resume-schedule", "break-lock", "cancel-batch", "maintain".
	// "unseal" is whether a page may show arguments that honker.Options.Codec has to open.
	Verb  string
	Write bool // the verb changes the file
	// Queue is the one queue that is concerned; "": there may be several, or it is not about queues.
	Queue  string
	Filter *admin.JobFilter // of a list, and of a verb on jobs; nil: none
	N      int64            // how many jobs the page has said that the verb would change; 0: it has not said
}

// ErrLogin makes the browser ask for a name and a password, where an Authorize returns it: the answer is 401.
var ErrLogin = errors.New("a name and a password are needed")

var (
	errNoAuthorize = errors.New("nothing is shown, because ui.Options.Authorize is not set. ui.Basic(user, password) asks for a password, " +
		"ui.ReadOnly lets everybody look, ui.AllowAll is for a handler that something else protects")
	errNoPassword = errors.New("ui.Basic was given an empty password, which lets no request in")
	errNoEnqueue  = errors.New("jobs are enqueued by hand only where ui.Options.Enqueue is set")
	errLooksOnly  = errors.New("this dashboard is for looking")
)

// ReadOnly is an Authorize by which all requests may look and none may change anything, or see arguments
// that are encrypted in the file.
func ReadOnly(_ *http.Request, a Access) error {
	if a.Write || a.Verb == "unseal" {
		return errLooksOnly
	}
	return nil
}

// AllowAll is an Authorize that refuses nothing: for a handler that is protected by something else.
func AllowAll(*http.Request, Access) error { return nil }

// Basic returns an Authorize that asks for one name and password, by HTTP basic authentication, and then
// allows everything. They are compared in constant time. An empty password is refused, so that a variable of
// the environment that is not set opens nothing. Passwords travel as text: use it over HTTPS, or on one machine.
func Basic(user, password string) func(*http.Request, Access) error {
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

// authorize is the one place that decides whether a request may go on.
func (h *Handler) authorize(r *http.Request, a Access) error {
	switch {
	case h.opts.Authorize == nil:
		return errNoAuthorize
	case a.Write && h.opts.ReadOnly:
		return errLooksOnly
	}
	return h.opts.Authorize(r, a)
}

// can reports whether a page should offer a verb. The answer is kept for the page.
func (c *call) can(verb, queue string) bool {
	key := [2]string{verb, queue}
	allowed, known := c.allowed[key]
	if !known {
		allowed = c.h.authorize(c.r, Access{Verb: verb, Write: c.h.routes[verb].write, Queue: queue}) == nil
		c.allowed[key] = allowed
	}
	return allowed
}
