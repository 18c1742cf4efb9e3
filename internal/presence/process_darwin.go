package presence

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/honker-go/honker/internal/row"
)

// identify returns whatever is known that distinguishes this process from all others: the machine's boot, and the
// start time in microseconds. macOS has no PID namespaces.
func identify() (p row.Process) {
	boot, err := unix.Sysctl("kern.bootsessionuuid")
	if err != nil {
		return p
	}
	start, running := startOf(os.Getpid())
	if !running {
		return p
	}
	return row.Process{Boot: boot, Start: start}
}

// zombie is SZOMB of sys/proc.h: the process has ended, but its parent has not waited for it.
const zombie = 5

func startOf(pid int) (start int64, running bool) {
	info, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil {
		return 0, false
	}
	began := info.Proc.P_starttime
	return began.Sec*1_000_000 + int64(began.Usec), info.Proc.P_stat != zombie
}
