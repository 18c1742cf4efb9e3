package sqlite

import (
	"fmt"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Variables, so that a test can stand in for what is mounted.
var (
	statfs    = syscall.Statfs
	mountinfo = "/proc/self/mountinfo"
)

// filesystems has those that other machines may see, by the type that statfs(2) tells.
//
// Refused are those on which POSIX locks do not reach the other machines, or do so only
// with options of the mount that cannot be asked for, or on which memory that is mapped
// from a file is not the same memory on all of them. WAL needs both. Cluster filesystems
// have such locks and memory, unless they are mounted with options that turn them off, so
// they get a warning.
//
// The numbers are those of linux/magic.h where package unix has a name for them; vboxsf's
// and GFS2's stand in the kernel's sources of them, in fs/vboxsf/super.c and
// linux/gfs2_ondisk.h, the others in stat.c of the GNU coreutils.
var filesystems = map[uint32]filesystem{
	unix.NFS_SUPER_MAGIC:  {"NFS", true},
	unix.SMB_SUPER_MAGIC:  {"SMB", true},
	unix.CIFS_SUPER_MAGIC: {"CIFS", true},
	unix.SMB2_SUPER_MAGIC: {"SMB2", true},
	unix.V9FS_MAGIC:       {"9P", true}, // also what WSL 2 shows of Windows' disks
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
	0xbacbacbc:            {"vmhgfs", true}, // of VMware
	0x7c7c6673:            {"prl_fs", true}, // of Parallels

	unix.OCFS2_SUPER_MAGIC: {"OCFS2", false},
	0x01161970:             {"GFS2", false},
	0xbeefdead:             {"StorNext", false},
	0x61636673:             {"ACFS", false},
}

// fuseRefused has the FUSE filesystems over a network or an object store that keep locks
// to the machine. The names are those of the type of a mount, as mount(8) shows it.
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

// filesystemUnder tells the filesystem of path. Where the kernel does not say, the file
// is taken for local: the other answer would refuse every file.
func filesystemUnder(path string) filesystem {
	var st syscall.Statfs_t
	if err := statfs(path, &st); err != nil {
		return filesystem{}
	}
	// On a machine where the field has a sign, some numbers come negative.
	magic := uint32(st.Type)
	if magic == unix.FUSE_SUPER_MAGIC {
		return fuseUnder(path)
	}
	return filesystems[magic]
}

// fuseUnder tells one FUSE filesystem from another. It may be a local disk (NTFS), a
// folder of the host that virtual machines share (virtiofs), or a network: what is not
// known is doubted.
func fuseUnder(path string) filesystem {
	kind := mountType(path)
	switch kind {
	case "", "fuse":
		return filesystem{name: "FUSE"}
	case "fuseblk":
		return filesystem{} // on a block device, so of this machine
	}
	return filesystem{name: "FUSE (" + kind + ")", refused: fuseRefused[kind]}
}

// mountType returns the type of the mount under path, "" where it cannot be found out.
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
