package watch

import (
	"encoding/binary"
	"os"

	"golang.org/x/sys/unix"
)

// inotify is an inotify instance of the kernel, by its system calls. It opens no
// descriptor on the watched files, so it cannot drop SQLite's locks. A library for file
// events would read each event at once, where the mux lets them pile up.
type inotify struct {
	fd   int      // for the watches; file.Fd would switch the descriptor to blocking
	file *os.File // for reads, which wait in Go's poller and end with close
}

// Variables, so that a test can use up what the system has of both.
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

// watch adds the events of mask to those that are already watched at path. The watch
// descriptor belongs to the file: another path of the same file has the same one.
func (i inotify) watch(path string, mask uint32) (int32, error) {
	wd, err := inotifyAddWatch(i.fd, path, mask|unix.IN_MASK_ADD)
	return int32(wd), os.NewSyscallError("inotify_add_watch", err)
}

// forget ends a watch. An error means that it had already ended with its file.
func (i inotify) forget(wd int32) { _, _ = unix.InotifyRmWatch(i.fd, uint32(wd)) }

// read blocks until there are events and calls f for each. It fails after close.
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
