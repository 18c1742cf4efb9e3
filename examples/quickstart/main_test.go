package main

import (
	"bytes"
	"context"
	"log"
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// Example runs the program in an empty directory and then again with the database from the first
// run.
func Example() {
	dir, err := os.MkdirTemp("", "quickstart")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chdir(dir); err != nil {
		log.Fatal(err)
	}
	for range 2 {
		if err := run(context.WithCancel(context.Background())); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// receipt for order 1 tea
	// receipt for order 2 tea
}

// TestReadme checks that the first Go block of the README is this program.
func TestReadme(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	program, err := os.ReadFile("main.go")
	require.NoError(t, err)
	block := regexp.MustCompile("(?s)```go\n(.*?)```").FindSubmatch(readme)
	require.NotNil(t, block)
	require.Equal(t, string(bytes.TrimSpace(program)), string(bytes.TrimSpace(block[1])))
}
