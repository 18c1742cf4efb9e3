// Package admin is for the operators of a honker file: it tells what lies in each queue and topic, which
// locks are held and what the file is like, and changes many jobs at once. Its functions take the DB, and
// work on any queue of the file, whichever binding of honker uses it. What an application says of its own work is in package honker.
//
// A look writes nothing and costs the file little: it goes by indexes, never waits for the writer and
// holds up no writer. Nothing runs when no function is called.
//
// Verbs that change jobs take a [JobFilter], one for all of them, act in transactions of some
// milliseconds with pauses between them, and return a [Report] of what they did, also with an error.
// A program that dies in between leaves each job either changed or as it was.
//
// All errors work with errors.Is and the errors of package honker.
package admin
