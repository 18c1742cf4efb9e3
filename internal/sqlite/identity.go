package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync/atomic"
	"syscall"
	"time"
)

// Identity is which file was opened, and whether the path still leads to it.
//
// A descriptor goes on pointing to the old file when another one is renamed over its
// name. Writes then succeed without an error, into a file that no other process can
// open any more, so whatever writes has to compare the two now and then.
type Identity struct {
	path     string
	info     os.FileInfo // at the opening
	now      func() time.Time
	start    time.Time
	checked  atomic.Int64          // how long after start the two were last compared
	replaced atomic.Bool           // stays true: a file that comes back may have missed commits
	unknown  atomic.Pointer[error] // why the last look has found nothing out; nil: it has
}

// identityInterval is how stale the answer of Check may be: a busy writer would ask for a
// stat with each of thousands of commits a second.
const identityInterval = 100 * time.Millisecond

// NewIdentity remembers the file that lies at path now.
func NewIdentity(path string) (*Identity, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	start := time.Now().Add(-identityInterval) // so that the first Check looks
	return &Identity{path: path, info: info, now: time.Now, start: start}, nil
}

// age counts on the monotonic clock. By the time of day no look would be due for as long as
// the clock was set back, and commits would go to a file that is gone.
func (i *Identity) age() time.Duration { return i.now().Sub(i.start) }

// Path is where the file was opened.
func (i *Identity) Path() string { return i.path }

// Info is the file that was opened, for os.SameFile.
func (i *Identity) Info() os.FileInfo { return i.info }

// Check returns ErrReplaced when another file lies at the path, or none. It looks at most every
// 100 ms, whichever goroutine asks. Where the path cannot be looked at the error says why, and
// the next call looks again.
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

// CheckNow is Check that always looks.
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
	default: // a directory that is closed for a moment, a disk that fails: nothing is known of the file
		unknown = &err
	}
	i.unknown.Store(unknown)
}

func (i *Identity) result() error {
	if i.replaced.Load() {
		return fmt.Errorf("%w: %s", ErrReplaced, i.path)
	}
	if unknown := i.unknown.Load(); unknown != nil {
		return fmt.Errorf("cannot tell whether the file was replaced: %w", *unknown)
	}
	return nil
}
