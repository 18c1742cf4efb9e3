// Package ui provides a web dashboard for a honker file. It shows queues and topics, current problems and the
// errors of jobs, and lets operators change them. The dashboard is an http.Handler for the application's own
// server. It needs no scripts, cookies or external resources, and reads the file only while a page is open.
//
// By default all requests are denied. Set Options.Authorize to decide which requests to allow.
//
// Pages work as plain HTML. If the browser allows scripts, open pages are updated after a commit by any
// process. Every view has a URL that can be shared. Changes are POST requests. Operators must confirm a change
// of many jobs. Every change is recorded in the file's audit log (see admin.Audit).
package ui
