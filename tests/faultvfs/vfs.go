//go:build unix

// Package faultvfs is a disk that fails on demand, below SQLite: for tests and the
// torture command. A Disk holds all files of one directory. It knows what was written
// and what was synced, so it can say what a power cut at any moment might have left;
// and it lets reads, writes, syncs and the like fail.
//
// It becomes the default VFS of the process on first use and passes everything on that
// lies in no Disk, so that the library under test needs no hook and does not know.
//
// The engine's structures are not covered by a promise of compatibility: nothing that
// ships imports this.
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
	methods uintptr // what SQLite would have called
}

var (
	original uintptr // the VFS below

	mu      sync.RWMutex // guards the maps
	disks   = map[string]*Disk{}
	handles = map[uintptr]handle{}
	ours    = map[uintptr]uintptr{} // methods → our copy of them
)

// install registers the VFS once, as the default one: a VFS cannot be taken back while
// a connection may use it.
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

// pointer is f as the engine calls it. f must be a function of the package: nothing
// keeps a closure alive.
func pointer[T any](f T) uintptr { return *(*uintptr)(unsafe.Pointer(&struct{ f T }{f})) }

// function is the opposite of pointer.
func function[T any](p uintptr) T { return *(*T)(unsafe.Pointer(&struct{ p uintptr }{p})) }

// at is the T at p, which lies outside of Go's heap.
func at[T any](p uintptr) *T { return *(**T)(unsafe.Pointer(&p)) }

func of(file uintptr) (handle, *lib.Tsqlite3_io_methods) {
	mu.RLock()
	defer mu.RUnlock()
	h := handles[file]
	return h, at[lib.Tsqlite3_io_methods](h.methods)
}

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
			*at[uintptr](file) = 0 // SQLite closes what has methods
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

// wrap lets the calls on file come here.
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

// xSync leaves the real disk alone: the Disk says what is durable.
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
