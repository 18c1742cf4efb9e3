// Package sqlite knows how to reach a SQLite file and nothing of what is in it:
// which connections are opened and how, who may write now,
// how many small writes become one commit, and what an error of the engine means.
// It is the only package that imports the driver.
package sqlite
