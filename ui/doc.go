// Package ui provides a web dashboard for a honker file. It shows queues, topics, current problems and job
// errors, and lets operators act on them. The dashboard is an http.Handler for the application's own server.
// It needs no scripts, cookies or external resources, and reads the file only while a page is open.
//
// By default all requests are denied. Set Options.Authorize to decide which requests to allow.
//
// Pages work as plain HTML. If the browser allows scripts, open pages are updated after a commit by any
// process. Every view has a URL that can be shared. Changes are POST requests. Operators must confirm changes
// that affect many jobs. Every change is recorded in the file's audit log (see admin.Audit).
package ui
