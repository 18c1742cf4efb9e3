// Package testkit provides test helpers for all modules in this repository.
//
//   - Children: a test can start its own binary as another process, to kill it or stop it at
//     any moment. A child is a function that TestMain passes to Main under a name. It
//     communicates with its parent in lines, by Say and ReadLine. Its context ends when its
//     stdin is closed, so a child does not outlive its parent.
//   - Ledgers: files with notes outside of the database, against which tests that kill
//     processes check it. ReadRelayHistory checks the order of a relay's messages.
//   - Seeds: Seed and Rand provide random values that -seed repeats.
//   - Bindings: honker's own SQL on a plain connection, as other languages run it.
//   - Shorthands for calls that must succeed, such as Enqueue, ClaimOne, Publish and
//     Register. They fail the test on an error.
//   - Queries on the file: QueryInt, Rows, Dump and some counting statements.
//   - The mark of a test about the file: FileOnly.
package testkit
