//go:build unix

// Package faultvfs simulates a failing disk below SQLite, for tests and for the torture command. A
// Disk contains all files of a directory. It records which writes were synced, and can therefore
// produce the states that a power cut may leave. It can also make single operations fail.
//
// On first use the package registers itself as the default VFS of the process. It passes on all
// operations on files outside of its disks, so the library under test needs no hook.
//
// The package depends on internal structures of the SQLite driver that may change with any version.
// Only tests may import it.
package faultvfs

import (
	"errors"
	"fmt"
	"sync"
	"unsafe"

	"modernc.org/libc"
	lib "modernc.org/sqlite/lib"
)

// handle is an open file of a Disk.
type handle struct {
	disk    *Disk
	path    string
	methods uintptr // SQLite's own methods
}

var (
	original uintptr // the VFS below

	mu      sync.RWMutex // protects the maps
	disks   = map[string]*Disk{}
	handles = map[uintptr]handle{}
	ours    = map[uintptr]uintptr{} // our copies of method tables, by the original
)

// install registers the VFS as the default, at most once per process. A VFS cannot be unregistered
// while a connection may use it.
var install = sync.OnceValue(func() error {
	tls := libc.NewTLS()
	if original = lib.Xsqlite3_vfs_find(tls, 0); original == 0 {
		return errors.New("faultvfs: there is no default VFS")
	}
	p := libc.Xmalloc(tls, libc.Tsize_t(unsafe.Sizeof(lib.Tsqlite3_vfs{})))
	name, err := libc.CString("honker-fault")
	if err != nil || p == 0 {
		return fmt.Errorf("faultvfs: out of memory: %w", err)
	}
	v := at[lib.Tsqlite3_vfs](p)
	*v = *at[lib.Tsqlite3_vfs](original)
	v.FzName, v.FpNext = name, 0
	v.FxOpen, v.FxDelete = pointer(xOpen), pointer(xDelete)
	v.FxCurrentTimeInt64 = pointer(xCurrentTimeInt64)
	if code := lib.Xsqlite3_vfs_register(tls, p, 1); code != 0 {
		return fmt.Errorf("faultvfs: register: %d", code)
	}
	return nil
})

// pointer returns f in the form in which the engine calls functions. f must be a package-level
// function, because a closure could be garbage collected.
func pointer[T any](f T) uintptr { return *(*uintptr)(unsafe.Pointer(&struct{ f T }{f})) }

// function is the inverse of pointer.
func function[T any](p uintptr) T { return *(*T)(unsafe.Pointer(&struct{ p uintptr }{p})) }

// at returns the T at address p, which must be outside of Go's heap.
func at[T any](p uintptr) *T { return *(**T)(unsafe.Pointer(&p)) }

func of(file uintptr) (handle, *lib.Tsqlite3_io_methods) {
	mu.RLock()
	defer mu.RUnlock()
	h := handles[file]
	return h, at[lib.Tsqlite3_io_methods](h.methods)
}

// diskOf returns the Disk of a file, or nil if it is not on a Disk, and its path.
func diskOf(name uintptr) (*Disk, string) {
	if name == 0 {
		return nil, "" // a temporary file
	}
	path := libc.GoString(name)
	mu.RLock()
	defer mu.RUnlock()
	for dir, d := range disks {
		if len(path) > len(dir) && path[:len(dir)] == dir && path[len(dir)] == '/' {
			return d, path
		}
	}
	return nil, path
}

type openFunc = func(tls *libc.TLS, vfs, name, file uintptr, flags int32, out uintptr) int32

func xOpen(tls *libc.TLS, _, name, file uintptr, flags int32, out uintptr) int32 {
	d, path := diskOf(name)
	if d != nil {
		if code := d.call(Open, path); code != 0 {
			*at[uintptr](file) = 0 // otherwise SQLite would call the close method
			return code
		}
	}
	code := function[openFunc](at[lib.Tsqlite3_vfs](original).FxOpen)(tls, original, name, file, flags, out)
	if methods := *at[uintptr](file); code == 0 && methods != 0 && d != nil {
		wrap(tls, file, handle{d, path, methods})
		d.opened(path)
	}
	return code
}

// wrap redirects the operations on file to this package.
func wrap(tls *libc.TLS, file uintptr, h handle) {
	mu.Lock()
	defer mu.Unlock()
	copied, ok := ours[h.methods]
	if !ok {
		copied = libc.Xmalloc(tls, libc.Tsize_t(unsafe.Sizeof(lib.Tsqlite3_io_methods{})))
		m := at[lib.Tsqlite3_io_methods](copied)
		*m = *at[lib.Tsqlite3_io_methods](h.methods)
		m.FxClose, m.FxRead, m.FxWrite = pointer(xClose), pointer(xRead), pointer(xWrite)
		m.FxSync, m.FxTruncate, m.FxShmMap = pointer(xSync), pointer(xTruncate), pointer(xShmMap)
		ours[h.methods] = copied
	}
	handles[file] = h
	*at[uintptr](file) = copied
}

func xClose(tls *libc.TLS, file uintptr) int32 {
	h, m := of(file)
	mu.Lock()
	delete(handles, file)
	mu.Unlock()
	*at[uintptr](file) = h.methods
	return function[func(*libc.TLS, uintptr) int32](m.FxClose)(tls, file)
}

type dataFunc = func(tls *libc.TLS, file, buf uintptr, n int32, off int64) int32

func xRead(tls *libc.TLS, file, buf uintptr, n int32, off int64) int32 {
	h, m := of(file)
	if code := h.disk.call(Read, h.path); code != 0 {
		return code
	}
	return function[dataFunc](m.FxRead)(tls, file, buf, n, off)
}

func xWrite(tls *libc.TLS, file, buf uintptr, n int32, off int64) int32 {
	h, m := of(file)
	data := append([]byte(nil), unsafe.Slice(at[byte](buf), int(n))...)
	if code := h.disk.change(Write, h.path, record{off: off, data: data}); code != 0 {
		return code
	}
	return function[dataFunc](m.FxWrite)(tls, file, buf, n, off)
}

func xTruncate(tls *libc.TLS, file uintptr, size int64) int32 {
	h, m := of(file)
	if code := h.disk.change(Truncate, h.path, record{off: size, truncate: true}); code != 0 {
		return code
	}
	return function[func(*libc.TLS, uintptr, int64) int32](m.FxTruncate)(tls, file, size)
}

// xSync does not sync the real file: only the Disk's record decides which data is durable.
func xSync(_ *libc.TLS, file uintptr, _ int32) int32 {
	h, _ := of(file)
	return h.disk.sync(h.path)
}

type shmMapFunc = func(tls *libc.TLS, file uintptr, region, size, extend int32, out uintptr) int32

func xShmMap(tls *libc.TLS, file uintptr, region, size, extend int32, out uintptr) int32 {
	h, m := of(file)
	if code := h.disk.call(ShmMap, h.path); code != 0 {
		return code
	}
	return function[shmMapFunc](m.FxShmMap)(tls, file, region, size, extend, out)
}

type deleteFunc = func(tls *libc.TLS, vfs, name uintptr, syncDir int32) int32

func xDelete(tls *libc.TLS, _, name uintptr, syncDir int32) int32 {
	if d, path := diskOf(name); d != nil {
		if code := d.deleted(path, syncDir != 0); code != 0 {
			return code
		}
	}
	return function[deleteFunc](at[lib.Tsqlite3_vfs](original).FxDelete)(tls, original, name, syncDir)
}
