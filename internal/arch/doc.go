// Package arch contains only tests. They enforce rules of the repository that the compiler cannot
// check: which packages may import each other, that SQL stays in internal/store and the driver in
// internal/sqlite, that no other code opens the database file, that each file of the root package
// exports something, and that pages name files that exist.
package arch
