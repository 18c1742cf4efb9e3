// Package arch holds no code: its tests keep the rules of the repository that a compiler
// cannot see. Imports point one way, SQL stays in internal/store, the driver in
// internal/sqlite; nothing opens the database file behind SQLite's back; each file of the root
// exports something; pages name files that exist.
package arch
