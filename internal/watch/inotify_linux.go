package watch

import (
	"encoding/binary"
	"os"

	"golang.org/x/sys/unix"
)

// inotify is an instance of the kernel's: it tells what happens to the files behind
// paths. It opens no descriptor on them, so no lock of SQLite's can be dropped.
type inotify struct {
	fd   int // watches are set on it; file's Fd would make it a blocking one
	file *os.File
}

func newInotify() (inotify, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return inotify{}, os.NewSyscallError("inotify_init1", err)
	}
	return inotify{fd, os.NewFile(uintptr(fd), "inotify")}, nil
}

// watch asks for the events of mask, beside what is asked for already. The descriptor is
// the file's: other paths of it have the same.
func (i inotify) watch(path string, mask uint32) (int32, error) {
	wd, err := unix.InotifyAddWatch(i.fd, path, mask|unix.IN_MASK_ADD)
	return int32(wd), err
}

// forget ends a watch; an error says that it had ended with its file.
func (i inotify) forget(wd int32) { _, _ = unix.InotifyRmWatch(i.fd, uint32(wd)) }

// read waits for events and calls f for each. It fails after close.
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
