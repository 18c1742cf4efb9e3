// Package arch holds no code: its tests keep the rules of the house that a compiler
// cannot see. Imports point one way, SQL stays in internal/store, the driver in
// internal/sqlite, and nothing opens the database file behind SQLite's back.
package arch
