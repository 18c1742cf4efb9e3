package presence

import (
	"bytes"
	"os"
	"strconv"
	"strings"

	"github.com/honker-go/honker/internal/store"
)

const proc = "/proc/"

// identify says what tells this process from all others, as far as it can be found out: the boot of
// the machine, the space that its id is of, and when it was started, in ticks since the boot.
func identify() (p store.Process) {
	boot, err := os.ReadFile(proc + "sys/kernel/random/boot_id")
	if err != nil {
		return p
	}
	// A /proc of another space shows other processes under the ids.
	if id, err := os.Readlink(proc + "self"); err != nil || id != strconv.Itoa(os.Getpid()) {
		return p
	}
	space, err := os.Readlink(proc + "self/ns/pid")
	if err != nil {
		return p
	}
	start, running := startOf(os.Getpid())
	if !running {
		return p
	}
	return store.Process{Boot: strings.TrimSpace(string(boot)), Space: space, Start: start}
}

// startOf reads when a process was started, 0 if that is not to be read. One that has ended, and that its
// parent has not waited for, does not run.
func startOf(pid int) (start int64, running bool) {
	stat, err := os.ReadFile(proc + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, false
	}
	// pid (name) state …: the name may hold anything. The start is the 22nd field.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 20 {
		return 0, false
	}
	start, err = strconv.ParseInt(string(fields[19]), 10, 64)
	if err != nil {
		return 0, false
	}
	state := fields[0][0]
	return start, state != 'Z' && state != 'X'
}
