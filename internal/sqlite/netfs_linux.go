package sqlite

import "syscall"

// statfs is a variable so that a test can stand in for a mounted network disk.
var statfs = syscall.Statfs

// Filesystems on which several machines may see the file, or whose locks and
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

// networkFilesystem names the network filesystem under path, "" for a local one.
func networkFilesystem(path string) string {
	var st syscall.Statfs_t
	if err := statfs(path, &st); err != nil {
		return ""
	}
	return networkFilesystems[uint32(st.Type)]
}
