// Package admin inspects and changes a honker file for its operators. It reports the state of queues,
// topics and locks, describes the file, and changes many jobs at once. Its functions take a [honker.DB] and
// work on every queue of the file, including queues of other bindings. The methods by which an application
// looks at its own work are in package honker.
//
// Functions that only read use indexes. They write nothing, never wait for the writer and do not block it.
// The package runs no goroutines in the background.
//
// Functions that change jobs take a [JobFilter]. They work in transactions of a few milliseconds with
// pauses between them, and return a [Report] of their changes even if they fail. If the program dies in
// between, each job is either changed or as it was.
// All errors work with errors.Is and the errors of package honker.
package admin
