//go:build unix

package faultvfs

import (
	"os"
	"path/filepath"
	"strings"
	"sync"

	lib "modernc.org/sqlite/lib"
)

// Kind is what SQLite asks of a file.
type Kind string

// The kinds.
const (
	Open     Kind = "open"
	Read     Kind = "read"
	Write    Kind = "write"
	Sync     Kind = "sync"
	Truncate Kind = "truncate"
	Delete   Kind = "delete"
	ShmMap   Kind = "shmmap"
)

// Kinds are all that can fail.
var Kinds = []Kind{Open, Read, Write, Sync, Truncate, Delete, ShmMap}

// Code is the error of the engine that suits a kind.
func (k Kind) Code() int32 {
	return map[Kind]int32{
		Open: lib.SQLITE_CANTOPEN, Read: lib.SQLITE_IOERR_READ, Write: lib.SQLITE_IOERR_WRITE,
		Sync: lib.SQLITE_IOERR_FSYNC, Truncate: lib.SQLITE_IOERR_TRUNCATE,
		Delete: lib.SQLITE_IOERR_DELETE, ShmMap: lib.SQLITE_IOERR_SHMMAP,
	}[k]
}

// Full is the error of a disk without space.
const Full int32 = lib.SQLITE_FULL

// Call is one request.
type Call struct {
	Kind Kind
	Path string
}

// Plan says which calls fail: it returns the engine's error code, or 0. It runs with
// the Disk locked.
type Plan func(Call) int32

// Disk is the files below one directory.
type Disk struct {
	dir string

	mu    sync.Mutex
	files map[string]*file
	plan  Plan
	watch func(Image) // told of each moment at which a cut would make a difference
	every func() bool // which of them
}

// file is what a power cut would find. While its directory has not been synced, a new
// file may be missing, and a deleted one be there.
type file struct {
	durable []byte
	pending []record
	exists  bool
	entry   bool  // the directory has it durably
	ghost   *file // what has been at this name, and may be again
}

// record is a change that was not synced yet.
type record struct {
	off      int64 // or the new size
	data     []byte
	truncate bool
}

// New puts all files below dir on a Disk. What lies there already is durable; no process
// in this process may have it open.
func New(dir string) (*Disk, error) {
	if err := install(); err != nil {
		return nil, err
	}
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil, err
	}
	d := &Disk{dir: real, files: map[string]*file{}}
	names, err := filepath.Glob(filepath.Join(real, "*"))
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		d.files[name] = &file{durable: text, exists: true, entry: true}
	}
	mu.Lock()
	defer mu.Unlock()
	disks[real] = d
	return d, nil
}

// Remove takes the Disk away. No file of it may be open.
func (d *Disk) Remove() {
	mu.Lock()
	defer mu.Unlock()
	delete(disks, d.dir)
}

// Fail sets which calls fail from now on; nil: none.
func (d *Disk) Fail(p Plan) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.plan = p
}

// Cut calls look with what a power cut would find, before those changes and syncs for
// which every returns true. Both run with the Disk locked: nothing moves meanwhile.
func (d *Disk) Cut(every func() bool, look func(Image)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.every, d.watch = every, look
}

// The -shm file is memory: no cut leaves anything of it.
func kept(path string) bool { return !strings.HasSuffix(path, "-shm") }

func (d *Disk) call(k Kind, path string) int32 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.fails(k, path)
}

func (d *Disk) fails(k Kind, path string) int32 {
	if d.plan == nil {
		return 0
	}
	return d.plan(Call{k, path})
}

// moment is just before something changes.
func (d *Disk) moment() {
	if d.watch != nil && d.every() {
		d.watch(d.image())
	}
}

func (d *Disk) opened(path string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !kept(path) || d.at(path).exists {
		return
	}
	f := &file{exists: true}
	if old := d.at(path); old.entry {
		f.ghost = old // deleted a moment ago, for all that the directory knows
	}
	d.files[path] = f
}

// at is the file at path, if only one that has never been.
func (d *Disk) at(path string) *file {
	if d.files[path] == nil {
		d.files[path] = &file{}
	}
	return d.files[path]
}

func (d *Disk) change(k Kind, path string, r record) int32 {
	d.mu.Lock()
	defer d.mu.Unlock()
	if code := d.fails(k, path); code != 0 {
		return code
	}
	if kept(path) {
		d.moment()
		f := d.at(path)
		f.pending = append(f.pending, r)
	}
	return 0
}

func (d *Disk) sync(path string) int32 {
	d.mu.Lock()
	defer d.mu.Unlock()
	if code := d.fails(Sync, path); code != 0 {
		return code
	}
	d.moment()
	f := d.at(path)
	for _, r := range f.pending {
		f.durable = r.apply(f.durable)
	}
	f.pending = nil
	if journal := strings.HasSuffix(path, "-wal") || strings.HasSuffix(path, "-journal"); journal && !f.entry {
		d.syncDir() // SQLite does so with a new journal, and with no other file
	}
	return 0
}

func (d *Disk) deleted(path string, syncDir bool) int32 {
	d.mu.Lock()
	defer d.mu.Unlock()
	if code := d.fails(Delete, path); code != 0 {
		return code
	}
	if kept(path) {
		d.moment()
		d.at(path).exists = false
		if syncDir {
			d.syncDir()
		}
	}
	return 0
}

// syncDir makes durable which files there are.
func (d *Disk) syncDir() {
	for path, f := range d.files {
		f.entry, f.ghost = true, nil
		if !f.exists {
			delete(d.files, path)
		}
	}
}

func (r record) apply(b []byte) []byte {
	if r.truncate {
		return resize(b, int(r.off))
	}
	b = resize(b, max(len(b), int(r.off)+len(r.data)))
	copy(b[r.off:], r.data)
	return b
}

func resize(b []byte, n int) []byte {
	if n <= len(b) {
		return b[:n]
	}
	return append(b, make([]byte, n-len(b))...)
}
