package sqlite

import (
	"io/fs"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// What is asked of the operating system. Each platform file has the same functions.

// Pause blocks for less than a millisecond, which time.Sleep cannot on Linux: the
// runtime waits for its timers with epoll, in whole milliseconds.
func Pause(d time.Duration) {
	ts := syscall.NsecToTimespec(int64(d))
	_ = syscall.Nanosleep(&ts, nil)
}

// links counts the names that a file has.
func links(info fs.FileInfo) uint64 {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(s.Nlink)
	}
	return 1
}

// startWriteback has the kernel begin to write what is in memory of f, without waiting
// for the disk.
func startWriteback(f *os.File) error {
	return unix.SyncFileRange(int(f.Fd()), 0, 0, unix.SYNC_FILE_RANGE_WRITE)
}

const canStartWriteback = true

// statfs is a variable so that a test can stand in for a mounted network disk.
var statfs = syscall.Statfs

// Filesystems on which several machines may see the file, or on which locks and
// shared memory are known not to hold; magic numbers as in statfs(2).
var networkFilesystems = map[uint32]string{
	0x00006969: "NFS",
	0x0000517b: "SMB",
	0xff534d42: "CIFS",
	0xfe534d42: "SMB2",
	0x01021997: "9P",
	0x5346414f: "AFS",
	0x00c36400: "Ceph",
	0x0bd00bd0: "Lustre",
	0x47504653: "GPFS",
}

// networkFilesystem names the network filesystem under path, "" for a local one. Where
// the kernel does not say, the file is taken for local: the other answer would refuse
// every file.
func networkFilesystem(path string) string {
	var st syscall.Statfs_t
	if err := statfs(path, &st); err != nil {
		return ""
	}
	return networkFilesystems[uint32(st.Type)]
}
