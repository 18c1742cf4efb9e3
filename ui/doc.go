// Package ui provides a web dashboard for a honker file. It shows queues and topics, current problems and the
// errors of jobs, and lets operators change them. The dashboard is an http.Handler for the application's own
// server. It needs no scripts, cookies or external resources, and reads the file only while a page is open.
//
// By default all requests are refused. Options.Authorize decides about each request.
//
// Pages work as plain HTML. If scripts are enabled in the browser, open pages are updated after a commit by any
// process. Every view has a URL that can be shared. Changes are POST requests. A change of many jobs must be
// confirmed, and every change is recorded in the audit of the file, see admin.Audit.
package ui
