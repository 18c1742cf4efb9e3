// Package store holds every SQL statement that honker runs, as methods of stateless types in a
// package for each noun, such as jobs.Jobs, streams.Streams and locks.Locks. The package rows has what they
// share, and schema creates, upgrades and checks the tables. This package has only their tests.
//
// A method of a store takes a row.Querier to run on, and the current time. Helpers take the time in the
// unit of the column: now in unix seconds, or nowMS in milliseconds. Methods have no clock, no
// goroutines and no policy. They neither begin nor commit transactions, so a method of several
// statements is atomic only within the caller's transaction.
//
// A comment above a statement names the index that it uses; the query plans are golden files. A
// LIMIT is written as "?3 + 0" because SQLite inspects the value of a bare parameter during
// planning, and plans again whenever another value is bound.
package store
