// Package ui is a dashboard of a honker file: what lies in each queue and topic, what is wrong, what a job
// has died of, and the verbs of an operator. It is an http.Handler for the application's own server, needs
// no script, no cookie and nothing from elsewhere, and reads the file only while a page is open.
//
// It is closed by default: Options.Authorize decides about each request.
//
// Pages are complete as HTML. Where the browser runs scripts they follow the file: a commit by any process
// shows at once. A view is a URL that can be handed on; a verb is a POST that says what
// it is going to do before it does it to many jobs, and leaves an entry in the audit of the file: see Audit of package admin.
package ui
