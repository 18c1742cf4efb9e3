// Package row holds the rows and requests that pass between honker's verbs and a store: jobs,
// claims, events and locks. They are plain structs. The package contains no SQL and opens no
// database, so a store for any database can use it.
//
// Times are unix seconds unless the name of the field ends in MS, for unix milliseconds. A zero
// time is an absent time.
package row
