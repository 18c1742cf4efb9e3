//go:build unix

package faultvfs

import (
	"os"
	"path/filepath"
	"strings"
	"sync"

	lib "modernc.org/sqlite/lib"
)

// Kind is the kind of a file operation.
type Kind string

// The file operations that a Plan can fail.
const (
	Open     Kind = "open"
	Read     Kind = "read"
	Write    Kind = "write"
	Sync     Kind = "sync"
	Truncate Kind = "truncate"
	Delete   Kind = "delete"
	ShmMap   Kind = "shmmap"
)

// Kinds lists all kinds.
var Kinds = []Kind{Open, Read, Write, Sync, Truncate, Delete, ShmMap}

// Code returns the SQLite error code for a failure of k.
func (k Kind) Code() int32 {
	return map[Kind]int32{
		Open: lib.SQLITE_CANTOPEN, Read: lib.SQLITE_IOERR_READ, Write: lib.SQLITE_IOERR_WRITE,
		Sync: lib.SQLITE_IOERR_FSYNC, Truncate: lib.SQLITE_IOERR_TRUNCATE,
		Delete: lib.SQLITE_IOERR_DELETE, ShmMap: lib.SQLITE_IOERR_SHMMAP,
	}[k]
}

// Full is the SQLite error code of a full disk.
const Full int32 = lib.SQLITE_FULL

// Call describes a file operation.
type Call struct {
	Kind Kind
	Path string
}

// Plan decides which calls fail. It returns a SQLite error code, or 0 to let the call pass. It is
// called with the Disk locked and must not use it.
type Plan func(Call) int32

// Disk simulates the disk below a directory.
type Disk struct {
	dir string

	mu    sync.Mutex
	files map[string]*file
	plan  Plan
	watch func(Image) // called before a change or a sync, see Cut
	every func() bool // selects the changes for which watch is called
}

// file is the state of a file that a power cut could reveal. Until its directory is synced, a new
// file may be missing and a deleted file may still exist.
type file struct {
	durable []byte
	pending []record
	exists  bool
	entry   bool  // the directory entry is durable
	ghost   *file // the earlier file of this name, whose deletion is not durable
}

// record is an unsynced change.
type record struct {
	off      int64 // or the new size, if truncate is set
	data     []byte
	truncate bool
}

// New places all files below dir on a Disk. Existing files count as synced. No connection of this
// process may have them open.
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

// Remove removes the Disk. None of its files may be open.
func (d *Disk) Remove() {
	mu.Lock()
	defer mu.Unlock()
	delete(disks, d.dir)
}

// Fail makes the calls selected by p fail from now on. A nil p lets all calls pass.
func (d *Disk) Fail(p Plan) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.plan = p
}

// Cut calls look with the state that a power cut would leave. It does so before each change or sync
// for which every returns true. Both functions are called with the Disk locked, so the state cannot
// change meanwhile.
func (d *Disk) Cut(every func() bool, look func(Image)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.every, d.watch = every, look
}

// kept reports whether the file survives a power cut. The -shm file does not, because it is shared
// memory.
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

// moment must be called before each change.
func (d *Disk) moment() {
	if d.watch != nil && d.every() {
		d.watch(d.image())
	}
}

// opened records the creation of a file. If an earlier file of the same name was deleted, but the
// directory is not synced yet, a power cut may restore that file instead.
func (d *Disk) opened(path string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !kept(path) || d.at(path).exists {
		return
	}
	f := &file{exists: true}
	if old := d.at(path); old.entry {
		f.ghost = old // its deletion is not durable yet
	}
	d.files[path] = f
}

// at returns the file at path, creating an empty record for an unknown path.
func (d *Disk) at(path string) *file {
	if d.files[path] == nil {
		d.files[path] = &file{}
	}
	return d.files[path]
}

// change records an unsynced change of a file, unless the plan fails it.
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

// sync makes the changes of a file durable, unless the plan fails it.
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
		d.syncDir() // SQLite syncs the directory for a new journal only
	}
	return 0
}

// deleted records a deletion, which becomes durable when the directory is synced.
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

// syncDir makes the current directory entries durable.
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
