package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/honker-go/honker"
)

// look runs f on the file, which is not changed.
func (a *app) look(ctx context.Context, f func(db *honker.DB) error) error {
	path, err := a.path(ctx)
	if err != nil {
		return err
	}
	return a.with(ctx, path, f)
}

// change runs f on the file, which f may change.
func (a *app) change(ctx context.Context, f func(db *honker.DB) error) error {
	path, err := a.path(ctx)
	if err != nil {
		return err
	}
	return a.with(ctx, path, f)
}

func (a *app) with(ctx context.Context, path string, f func(db *honker.DB) error) (err error) {
	db, err := a.open(ctx, path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return f(db)
}

// maxPayload is no policy of the command's: an application may allow more than the default.
const maxPayload = 64 << 20

// open opens the file at path, which must be there.
func (a *app) open(ctx context.Context, path string) (*honker.DB, error) {
	if err := usable(path); err != nil {
		return nil, err
	}
	return honker.Open(ctx, path, &honker.Options{
		Logger: a.logger(), BusyTimeout: a.timeout, MaxPayload: maxPayload,
		NoFileNotices: true, // no command waits for commits
	})
}

// logger prints warnings of the library, without the time of day.
func (a *app) logger() *slog.Logger {
	if a.quiet {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(a.stderr, &slog.HandlerOptions{
		Level: slog.LevelWarn,
		ReplaceAttr: func(groups []string, attr slog.Attr) slog.Attr {
			if attr.Key == slog.TimeKey && len(groups) == 0 {
				return slog.Attr{}
			}
			return attr
		},
	}))
}

const chooseFile = "honker status -f FILE"

// regular refuses what is not a file, since the library would create one.
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

// path is the file that the command is about.
func (a *app) path(ctx context.Context) (string, error) {
	if a.file != "" {
		return a.file, nil
	}
	if path := a.getenv("HONKER_FILE"); path != "" {
		return path, nil
	}
	found, err := filepath.Glob(filepath.Join(a.currentDir, "*.db"))
	if err != nil {
		return "", fmt.Errorf("search for a honker file: %w", err)
	}
	var ours []string
	for _, path := range found {
		if a.isHonker(ctx, path) {
			ours = append(ours, path)
		}
	}
	switch len(ours) {
	case 1:
		return ours[0], nil
	case 0:
		return "", usage(chooseFile, "no honker file here: name one with -f or $HONKER_FILE")
	default:
		return "", usage("honker status -f "+ours[0], "%d honker files here, %s: name one with -f or $HONKER_FILE",
			len(ours), strings.Join(ours, ", "))
	}
}

// isHonker reports whether the file at path is a database that can be read.
func (a *app) isHonker(ctx context.Context, path string) bool {
	return usable(path) == nil
}

// database refuses a file with other contents, before anything is opened that could change it.
func database(path string) error {
	const magic = "SQLite format 3\x00"
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	begin := make([]byte, len(magic))
	if _, err := io.ReadFull(file, begin); err != nil || string(begin) != magic {
		return &coded{code: codeRefused, err: fmt.Errorf("%s: not a SQLite database", path), try: chooseFile}
	}
	return nil
}

func usable(path string) error {
	if err := regular(path); err != nil {
		return err
	}
	return database(path)
}
