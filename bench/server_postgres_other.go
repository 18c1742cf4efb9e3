//go:build !unix

package main

import (
	"context"
	"errors"
)

// PostgreSQL is measured on Unix only, where its server can be given a throwaway socket.

var postgresSettings []string

func postgresVersion() string { return "" }

func stopPostgres() error { return nil }

func postgresDSN(context.Context, string, Durability) (string, bool, error) {
	return "", false, errors.New("no PostgreSQL server on this system")
}

func dropPostgres(context.Context, string) error { return nil }
