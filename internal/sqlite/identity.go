package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/honker-go/honker/internal/engine"
)

// Identity records which file was opened, and checks whether the path still leads to it.
//
// If another file is renamed over the path, an open descriptor still refers to the old file. Writes then succeed
// without an error, but go to a file that no other process can open. So every writer must check the identity
// occasionally.
type Identity struct {
	path     string
	info     os.FileInfo // of the opened file
	now      func() time.Time
	start    time.Time
	checked  atomic.Int64          // time of the last comparison, relative to start
	replaced atomic.Bool           // never reset: a file that reappears may have missed commits
	unknown  atomic.Pointer[error] // why the last comparison failed; nil if it succeeded
}

// identityInterval is the maximum age of Check's answer. Calling stat for each of thousands of
// commits per second would be too expensive.
const identityInterval = 100 * time.Millisecond

// NewIdentity records the file that is currently at path.
func NewIdentity(path string) (*Identity, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	start := time.Now().Add(-identityInterval) // so that the first Check compares
	return &Identity{path: path, info: info, now: time.Now, start: start}, nil
}

// age is based on the monotonic clock. If it used the time of day and the clock were set back, no check would be due
// until the clock caught up, and commits would go to a deleted file.
func (i *Identity) age() time.Duration { return i.now().Sub(i.start) }

// Path returns the path of the file when it was opened.
func (i *Identity) Path() string { return i.path }

// Info returns the os.FileInfo of the opened file, for os.SameFile.
func (i *Identity) Info() os.FileInfo { return i.info }

// Check returns ErrReplaced if the path leads to a different file or to none. It calls stat at most once every 100 ms
// across all goroutines. If stat fails for another reason, Check returns that error, and the next call tries again.
func (i *Identity) Check() error {
	if i.unknown.Load() != nil {
		return i.CheckNow()
	}
	age, last := i.age(), i.checked.Load()
	if age-time.Duration(last) >= identityInterval && i.checked.CompareAndSwap(last, int64(age)) {
		i.compare()
	}
	return i.result()
}

// CheckNow is like Check, but always calls stat.
func (i *Identity) CheckNow() error {
	i.checked.Store(int64(i.age()))
	i.compare()
	return i.result()
}

func (i *Identity) compare() {
	info, err := os.Stat(i.path)
	var unknown *error
	switch {
	case err == nil && os.SameFile(info, i.info):
	case err == nil, errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		i.replaced.Store(true)
	default: // for example missing permissions or a failing disk: the state of the file is unknown
		unknown = &err
	}
	i.unknown.Store(unknown)
}

func (i *Identity) result() error {
	if i.replaced.Load() {
		return fmt.Errorf("%w: %s", engine.ErrDatabaseReplaced, i.path)
	}
	if unknown := i.unknown.Load(); unknown != nil {
		return fmt.Errorf("cannot tell whether the file was replaced: %w", *unknown)
	}
	return nil
}
