// Package store holds every SQL statement that honker runs, as methods of stateless types in a package for each noun,
// such as jobs.Jobs, streams.Streams and locks.Locks. Package rows contains helpers that they share, and package
// schema creates, upgrades and checks the tables. This package itself contains only tests.
//
// A store's methods take a row.Querier to run on, and the current time. Helpers take the time in the column's unit:
// now in Unix seconds, or nowMS in milliseconds. Methods have no clock, goroutines or policy. They neither begin nor
// commit transactions, so a method that runs several statements is atomic only within the caller's transaction.
//
// A comment above a statement names the index that it uses; the query plans are golden files. A LIMIT is written as
// "?3 + 0" because SQLite looks at the value of a bare parameter during planning, and plans again whenever a
// different value is bound.
package store
