// Package row holds the rows and requests that pass between honker's verbs and a store: jobs,
// claims, events and locks. They are plain structs. The package contains no SQL and opens no
// database, so a store for any database can use it.
//
// Integer times are in Unix seconds, or in Unix milliseconds if the field's name ends in MS. A zero time means that
// there is none.
package row
