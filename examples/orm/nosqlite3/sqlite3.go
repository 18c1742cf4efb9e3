// Package sqlite3 replaces the C version of SQLite that gorm.io/driver/sqlite imports and that
// this example does not need.
package sqlite3
