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
)

// look runs f on the file, which is only read.
func (a *app) look(ctx context.Context, f func(db *honker.DB) error) error {
	path, err := a.path(ctx)
	if err != nil {
		return err
	}
	return a.with(ctx, path, access{readOnly: true}, f)
}

// watch runs f on the file, which f only reads, and f may wait for commits. A file that is in use by no
// process is read without its log, which ends when one begins to use it: so it is opened to be written, which
// makes this process one that uses it, unless it may only be read.
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

// change runs f on the file, which f may change. It is opened to be read before: to be written, it
// would be made a honker file, or be brought to this version's schema.
func (a *app) change(ctx context.Context, f func(db *honker.DB) error) error {
	return a.changeBy(ctx, access{}, f)
}

// serve is change for what waits for commits of others. observer may be nil.
func (a *app) serve(ctx context.Context, observer *honker.Observer, f func(db *honker.DB) error) error {
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

// try finds out whether the file can be used in this way.
func (a *app) try(ctx context.Context, path string, how access) error {
	return a.with(ctx, path, how, func(*honker.DB) error { return nil })
}

// access is how a command uses the file.
type access struct {
	readOnly bool
	waits    bool // for commits of other processes, of which the system gives notice
	observer *honker.Observer
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

// maxPayload is no policy of the command's: an application may allow more than the default.
const maxPayload = 64 << 20

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

// fileVariable is the environment variable that names the file.
const fileVariable = "HONKER_FILE"

// fileFlag is the value of -f. It refuses "", such as that of a variable of a shell that is not set: a command must not
// take another file then.
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

// namedFile is the file of -f, or of $HONKER_FILE; "" for none.
func (a *app) namedFile() string { return cmp.Or(a.file, a.getenv(fileVariable)) }

// path is the file that the command is about.
func (a *app) path(ctx context.Context) (string, error) {
	if path := a.namedFile(); path != "" {
		return path, nil
	}
	if a.emptyFile {
		return "", usage(chooseFile, "$%s is set to nothing: name a file by it, or unset it", fileVariable)
	}
	found, err := filepath.Glob(filepath.Join(a.currentDir, "*.db"))
	if err != nil {
		return "", fmt.Errorf("search for a honker file: %w", err)
	}
	return a.only(ctx, found)
}

// only is the one honker file among those that were found. Files of another version count: they are
// meant, and the command will say what is wrong with them.
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
		return "", usage(chooseFile, "no honker file here: name one with -f or $HONKER_FILE")
	default:
		return "", usage("honker status -f "+shellWord(ours[0]), "%d honker files here, %s: name one with -f or $HONKER_FILE",
			len(ours), strings.Join(ours, ", "))
	}
}
