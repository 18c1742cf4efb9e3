// Package testkit holds what the tests of this repository share, in every module of it.
//
//   - Children: a test can run its own binary again as another process, which can be
//     killed or stopped in the middle of what it does. A child is a function that
//     TestMain hands to Main under a name. It talks to its parent in lines: Say writes
//     one, ReadLine reads one. Its context ends when its stdin closes, so no child
//     outlives its parent.
//   - Ledgers: files of notes outside of the database, the oracle of tests that kill.
//     ReadRelayHistory says whether those of a relay are in order.
//   - Seeds: Seed and Rand draw what a failed run can draw again, with -seed.
//   - Bindings: honker's own SQL on a plain connection, as another language runs it.
//   - Short forms of verbs that must succeed: Enqueue, ClaimOne, Publish, Register and
//     others fail the test where an error is not what it is about.
//   - Questions about the file: QueryInt, Rows, Dump and some counting statements.
package testkit
