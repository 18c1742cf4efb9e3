// Package admin lets operators inspect and change a honker file. It reports the state of queues, topics and
// locks, describes the file, and changes many jobs at once. Its functions take a [honker.DB] and work on
// every queue in the file, including queues created by other bindings. Package honker has methods for an
// application to inspect its own work.
//
// Functions that only read use indexes. They write nothing, never wait for the writer and do not block it.
// The package does not start background goroutines.
//
// Functions that change jobs take a [JobFilter]. They work in transactions of a few milliseconds with
// pauses in between, and return a [Report] of their changes even if they fail. If the program crashes,
// each job has either been changed completely or not at all. All errors can be tested with errors.Is
// and the error values of package honker.
package admin
