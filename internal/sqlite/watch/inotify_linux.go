package watch

import (
	"encoding/binary"
	"os"

	"golang.org/x/sys/unix"
)

// inotify is a kernel inotify instance. It opens no descriptors on the watched files, so it cannot drop SQLite's
// locks. It makes system calls directly: libraries for file events read each event immediately, whereas the mux lets
// events accumulate.
type inotify struct {
	fd   int      // for adding watches; file.Fd would make the descriptor blocking
	file *os.File // for reading in Go's poller; unblocked by close
}

// Variables, so that tests can simulate exhausted limits.
var (
	inotifyInit     = unix.InotifyInit1
	inotifyAddWatch = unix.InotifyAddWatch
)

func newInotify() (inotify, error) {
	fd, err := inotifyInit(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return inotify{}, os.NewSyscallError("inotify_init1", err)
	}
	return inotify{fd, os.NewFile(uintptr(fd), "inotify")}, nil
}

// watch adds the events in mask to the events already watched at path. The watch descriptor
// identifies the file: all paths of a file have the same descriptor.
func (i inotify) watch(path string, mask uint32) (int32, error) {
	wd, err := inotifyAddWatch(i.fd, path, mask|unix.IN_MASK_ADD)
	return int32(wd), os.NewSyscallError("inotify_add_watch", err)
}

// forget removes a watch. Errors are ignored, because they mean that the watch has already ended with its file.
func (i inotify) forget(wd int32) { _, _ = unix.InotifyRmWatch(i.fd, uint32(wd)) }

// read blocks until there are events, and calls f for each. It fails after close.
func (i inotify) read(buf []byte, f func(wd int32, mask uint32)) error {
	n, err := i.file.Read(buf)
	if err != nil {
		return err
	}
	for at := 0; at+unix.SizeofInotifyEvent <= n; {
		// struct inotify_event: wd, mask, cookie, length of the name that follows
		f(int32(binary.NativeEndian.Uint32(buf[at:])), binary.NativeEndian.Uint32(buf[at+4:]))
		at += unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(buf[at+12:]))
	}
	return nil
}

func (i inotify) close() { _ = i.file.Close() }
