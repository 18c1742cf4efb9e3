package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/observe"
)

// look opens the file read-only, calls f and closes the file.
func (a *app) look(ctx context.Context, f func(db *honker.DB) error) error {
	path, err := a.path(ctx)
	if err != nil {
		return err
	}
	return a.with(ctx, path, access{readOnly: true}, f)
}

// watch calls f, which only reads the file but may wait for commits. If no other process is using the file, a read-only
// connection ignores the WAL, and is no longer valid once another process starts using the file. For this reason, watch
// opens the file for writing if it has permission.
func (a *app) watch(ctx context.Context, f func(db *honker.DB) error) error {
	path, err := a.path(ctx)
	if err != nil {
		return err
	}
	if err := a.try(ctx, path, access{readOnly: true}); err != nil {
		return err
	}
	how := access{readOnly: true, waits: true}
	if _, err := os.Stat(path + "-wal"); errors.Is(err, fs.ErrNotExist) {
		how.readOnly = a.try(ctx, path, access{}) != nil
	}
	return a.with(ctx, path, how, f)
}

// change calls f, which may change the file. The file is first opened read-only as a check, because opening it for
// writing would turn it into a honker file or upgrade its schema.
func (a *app) change(ctx context.Context, f func(db *honker.DB) error) error {
	return a.changeBy(ctx, access{}, f)
}

// serve is like change, but for an f that waits for commits by other processes. observer may be nil.
func (a *app) serve(ctx context.Context, observer *observe.Observer, f func(db *honker.DB) error) error {
	return a.changeBy(ctx, access{waits: true, observer: observer}, f)
}

func (a *app) changeBy(ctx context.Context, how access, f func(db *honker.DB) error) error {
	path, err := a.path(ctx)
	if err != nil {
		return err
	}
	if err := a.try(ctx, path, access{readOnly: true}); err != nil {
		return err
	}
	return a.with(ctx, path, how, f)
}

// try opens and closes the file to check that this kind of access works.
func (a *app) try(ctx context.Context, path string, how access) error {
	return a.with(ctx, path, how, func(*honker.DB) error { return nil })
}

// access describes how a command uses the file.
type access struct {
	readOnly bool
	waits    bool // needs to be notified by the system of other processes' commits
	observer *observe.Observer
}

func (a *app) with(ctx context.Context, path string, how access, f func(db *honker.DB) error) (err error) {
	if err := regular(path); err != nil {
		return err
	}
	db, err := honker.Open(ctx, path, &honker.Options{
		ReadOnly: how.readOnly, Logger: a.logger(), BusyTimeout: a.timeout, MaxPayload: maxPayload,
		NoFileNotices: !how.waits || a.noNotices, Observer: how.observer,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return f(db)
}

// maxPayload is large, because the application may have raised its own limit.
const maxPayload = 64 << 20

// logger returns a logger for warnings from the library, without timestamps.
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

// fileVariable is the environment variable that names the file.
const fileVariable = "HONKER_FILE"

// fileFlag implements pflag.Value for -f. It rejects "", for example from an unset shell variable. Falling back to a
// different file would be dangerous.
type fileFlag struct{ path *string }

// String implements pflag.Value.
func (f fileFlag) String() string {
	if f.path == nil {
		return ""
	}
	return *f.path
}

// Type implements pflag.Value.
func (f fileFlag) Type() string { return "path" }

// Set implements pflag.Value.
func (f fileFlag) Set(path string) error {
	if path == "" {
		return errors.New("the path is empty")
	}
	*f.path = path
	return nil
}

// namedFile returns the file named by -f or $HONKER_FILE, or "".
func (a *app) namedFile() string { return cmp.Or(a.file, a.getenv(fileVariable)) }

// path returns the path of the file that the command uses.
func (a *app) path(ctx context.Context) (string, error) {
	if path := a.namedFile(); path != "" {
		return path, nil
	}
	if a.emptyFile {
		return "", usage(chooseFile, "$%s is set but empty: set it to a file, or unset it", fileVariable)
	}
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
		err := a.try(ctx, path, access{readOnly: true})
		if err == nil || errors.As(err, &old) || errors.Is(err, honker.ErrSchemaTooNew) || errors.Is(err, honker.ErrBusy) {
			ours = append(ours, path)
		}
	}
	switch len(ours) {
	case 1:
		return ours[0], nil
	case 0:
		return "", usage(chooseFile, "no honker file in this directory: name a file with -f or $HONKER_FILE")
	default:
		return "", usage("honker status -f "+shellWord(ours[0]), "%d honker files in this directory (%s): name a file with -f or $HONKER_FILE",
			len(ours), strings.Join(ours, ", "))
	}
}
