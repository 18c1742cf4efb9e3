package presence

import (
	"bytes"
	"os"
	"strconv"
	"strings"

	"github.com/honker-go/honker/internal/row"
)

const proc = "/proc/"

// identify returns whatever is known that distinguishes this process from all others: the machine's boot, the PID
// namespace, and the start time in ticks since boot.
func identify() (p row.Process) {
	boot, err := os.ReadFile(proc + "sys/kernel/random/boot_id")
	if err != nil {
		return p
	}
	// In another PID namespace's /proc, the same IDs belong to other processes.
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
	return row.Process{Boot: strings.TrimSpace(string(boot)), Space: space, Start: start}
}

// startOf returns a process's start time, or 0 if it cannot be read. A zombie does not count as
// running.
func startOf(pid int) (start int64, running bool) {
	stat, err := os.ReadFile(proc + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, false
	}
	// pid (name) state …: the name may contain any characters. The start time is the 22nd field.
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
