// Package sqlite3 stands in for the SQLite in C that gorm.io/driver/sqlite imports and
// this example does not use.
package sqlite3
