package sqlite

import (
	"fmt"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Tests replace these variables.
var (
	statfs    = syscall.Statfs
	mountinfo = "/proc/self/mountinfo"
)

// filesystems lists the filesystems that several machines can share, by their type in statfs(2).
//
// A filesystem is rejected if its POSIX locks don't reach other machines, if they do so only with mount options that
// can't be queried, or if memory mapped from a file isn't shared by all machines. WAL needs both shared locks and
// shared memory. Cluster filesystems provide both unless mount options turn them off, so they only get a warning.
//
// The numbers that have names in package unix are from linux/magic.h. Those of vboxsf and GFS2 are from the kernel's
// fs/vboxsf/super.c and linux/gfs2_ondisk.h. The others are from stat.c in GNU coreutils.
var filesystems = map[uint32]filesystem{
	unix.NFS_SUPER_MAGIC:  {"NFS", true},
	unix.SMB_SUPER_MAGIC:  {"SMB", true},
	unix.CIFS_SUPER_MAGIC: {"CIFS", true},
	unix.SMB2_SUPER_MAGIC: {"SMB2", true},
	unix.V9FS_MAGIC:       {"9P", true}, // also the Windows disks in WSL 2
	unix.AFS_SUPER_MAGIC:  {"AFS", true},
	unix.AFS_FS_MAGIC:     {"AFS", true},
	unix.CODA_SUPER_MAGIC: {"Coda", true},
	unix.NCP_SUPER_MAGIC:  {"NCP", true},
	unix.CEPH_SUPER_MAGIC: {"Ceph", true},
	0x0bd00bd0:            {"Lustre", true},
	0x47504653:            {"GPFS", true},
	0x19830326:            {"BeeGFS", true},
	0xaad7aaea:            {"PanFS", true},
	0x013111a8:            {"IBRIX", true},
	0x786f4256:            {"vboxsf", true}, // shared folders of VirtualBox
	0xbacbacbc:            {"vmhgfs", true}, // shared folders of VMware
	0x7c7c6673:            {"prl_fs", true}, // shared folders of Parallels

	unix.OCFS2_SUPER_MAGIC: {"OCFS2", false},
	0x01161970:             {"GFS2", false},
	0xbeefdead:             {"StorNext", false},
	0x61636673:             {"ACFS", false},
}

// fuseRefused lists FUSE filesystems that are backed by a network or an object store and whose locks
// are local to a machine. The names are mount types as shown by mount(8).
var fuseRefused = map[string]bool{
	"fuse.sshfs":         true,
	"fuse.curlftpfs":     true,
	"fuse.rclone":        true,
	"fuse.s3fs":          true,
	"fuse.goofys":        true,
	"fuse.gcsfuse":       true,
	"fuse.blobfuse":      true,
	"fuse.blobfuse2":     true,
	"fuse.mountpoint-s3": true,
}

// filesystemUnder returns the filesystem that contains path. If the kernel can't tell, the file is assumed to be
// local, because otherwise every file would be rejected.
func filesystemUnder(path string) filesystem {
	var st syscall.Statfs_t
	if err := statfs(path, &st); err != nil {
		return filesystem{}
	}
	// The field is signed on some architectures, so some numbers are negative there.
	magic := uint32(st.Type)
	if magic == unix.FUSE_SUPER_MAGIC {
		return fuseUnder(path)
	}
	return filesystems[magic]
}

// fuseUnder distinguishes FUSE filesystems. A FUSE filesystem can be a local disk (NTFS), a folder of
// the host shared by virtual machines (virtiofs), or a network filesystem. Unknown types get a
// warning.
func fuseUnder(path string) filesystem {
	kind := mountType(path)
	switch kind {
	case "", "fuse":
		return filesystem{name: "FUSE"}
	case "fuseblk":
		return filesystem{} // a block device, so it is local
	}
	return filesystem{name: "FUSE (" + kind + ")", refused: fuseRefused[kind]}
}

// mountType returns the type of the mount that contains path, or "" if it is unknown.
func mountType(path string) string {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return ""
	}
	mounts, err := os.ReadFile(mountinfo)
	if err != nil {
		return ""
	}
	device := fmt.Sprintf("%d:%d", unix.Major(uint64(st.Dev)), unix.Minor(uint64(st.Dev)))
	for mount := range strings.Lines(string(mounts)) {
		// id, parent, device, root, mount point, options, any others, "-", type: proc_pid_mountinfo(5)
		before, after, _ := strings.Cut(mount, " - ")
		if f, of := strings.Fields(before), strings.Fields(after); len(f) > 2 && f[2] == device && len(of) > 0 {
			return of[0]
		}
	}
	return ""
}
