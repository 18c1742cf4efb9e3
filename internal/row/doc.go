// Package row holds the rows and requests that pass between honker's verbs and a store: jobs,
// claims, events, locks. They are plain structs. The package imports no database and contains no
// statement, so that a store of any database can use them.
//
// Times are unix seconds unless a field's name ends in MS; zero means that there is no time.
package row
