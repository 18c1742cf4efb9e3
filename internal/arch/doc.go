// Package arch contains only tests. They enforce rules of the repository that the compiler cannot
// check: which packages may import each other, that packages above the line do not know SQLite, that
// SQL stays in internal/sqlite/store and the driver in internal/sqlite, that no other code opens the
// database file, that each file of the root package exports something, that tests about the file
// are marked, that the picture of the packages agrees with the imports, and that pages name files that
// exist.
package arch
