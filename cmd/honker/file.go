package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/honker-go/honker"
)

const chooseFile = "honker status -f FILE"

// regular rejects a path that isn't an existing regular file. The library would create the file.
func regular(path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return usage(chooseFile, "%s: no such file", path)
	case err != nil:
		return err
	case info.IsDir():
		return usage(chooseFile, "%s: a directory, not a honker file", path)
	case !info.Mode().IsRegular():
		return usage(chooseFile, "%s: not a regular file", path)
	}
	return nil
}

// theFile returns the path of the only honker file in the current directory.
func (a *app) theFile(ctx context.Context) (string, error) {
	found, err := filepath.Glob(filepath.Join(a.currentDir, "*.db"))
	if err != nil {
		return "", fmt.Errorf("search for a honker file: %w", err)
	}
	return a.only(ctx, found)
}

// only returns the single honker file among found. Files from other versions count too: most likely that is the file
// the user means, and the command will then report its version.
func (a *app) only(ctx context.Context, found []string) (string, error) {
	var ours []string
	var old *honker.OldSchemaError
	for _, path := range found {
		err := a.try(ctx, database{path: path}, access{readOnly: true})
		if err == nil || errors.As(err, &old) || errors.Is(err, honker.ErrSchemaTooNew) || errors.Is(err, honker.ErrBusy) {
			ours = append(ours, path)
		}
	}
	switch len(ours) {
	case 1:
		return ours[0], nil
	case 0:
		return "", usage(chooseFile, "no honker file in this directory: name a file with -f or $HONKER_FILE, or a server with $HONKER_DSN")
	default:
		return "", usage("honker status -f "+shellWord(ours[0]), "%d honker files in this directory (%s): name a file with -f or $HONKER_FILE",
			len(ours), strings.Join(ours, ", "))
	}
}
