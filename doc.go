// Package honker turns a SQLite file into durable queues and notifications, in the
// caller's own transaction, woken by commits, without a server and without cgo, on the
// same file as honker workers in any other language.
package honker
