package main

import (
	"context"

	"github.com/honker-go/honker"
)

// database is a kind of database that the service can run on. Only the statements and the way to open it
// differ, because the rest of the service uses honker's handles, which are the same on both.
type database struct {
	open func(ctx context.Context, c config, o honker.Options) (*honker.DB, error)

	schema string // creates the tables, unless they exist
	books  string // selects the fields of books for a queue
	audit  string // selects the fields of standing for each order

	// constraint returns the name of the CHECK constraint that has rejected a row, or "".
	constraint func(err error) string
}

// database returns the kind that the flags select.
func (c config) database() database {
	if c.dsn != "" {
		return postgres
	}
	return sqlite
}
