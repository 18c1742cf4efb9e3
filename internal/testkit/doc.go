// Package testkit provides test helpers for all modules in this repository.
//
//   - Children: a test can start its own binary as another process, and kill it or stop it at any moment. A child is
//     a function that TestMain passes to Main under a name. It communicates with its parent in lines of text, through
//     Say and ReadLine. Its context ends when its stdin is closed, so a child doesn't outlive its parent.
//   - Ledgers: files outside the database in which processes take notes. Tests that kill processes check the database
//     against them. ReadRelayHistory checks the order of a relay's messages.
//   - Seeds: Seed and Rand provide random values that can be repeated with -seed.
//   - Bindings: honker's own SQL on a plain connection, the way other languages run it.
//   - Shorthands for calls that must succeed, such as Enqueue, ClaimOne, Publish and
//     Register. They fail the test on an error.
//   - Queries on the file: QueryInt, Rows, Dump and some counting statements.
//   - A marker for tests that are about the file: FileOnly.
package testkit
