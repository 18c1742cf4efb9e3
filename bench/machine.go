package main

import (
	"bytes"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
)

// Machine describes the hardware and software of a run.
type Machine struct {
	CPU      string
	Cores    int
	Memory   string
	OS       string
	Kernel   string
	Go       string
	Versions []string // module paths with versions
}

var interesting = []string{
	"modernc.org/sqlite", "modernc.org/libc", "github.com/riverqueue/river", "github.com/riverqueue/river/riverdriver/riversqlite",
	"github.com/riverqueue/river/riverdriver/riverpgxv5", "github.com/jackc/pgx/v5",
	"github.com/mikestefanello/backlite", "maragu.dev/goqite", "github.com/hibiken/asynq", "github.com/nats-io/nats.go",
	"github.com/dbos-inc/dbos-transact-golang",
}

func thisMachine() Machine {
	return Machine{
		CPU:      field("/proc/cpuinfo", "model name"),
		Cores:    runtime.GOMAXPROCS(0),
		Memory:   field("/proc/meminfo", "MemTotal"),
		OS:       runtime.GOOS + "/" + runtime.GOARCH,
		Kernel:   firstLine("/proc/sys/kernel/osrelease"),
		Go:       runtime.Version(),
		Versions: append(versions(), serverVersions()...),
	}
}

// field returns the value of the first line of a file that begins with name.
func field(path, name string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return "unknown"
	}
	for line := range bytes.Lines(text) {
		if key, value, ok := strings.Cut(string(line), ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

func firstLine(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return "unknown"
	}
	line, _, _ := strings.Cut(string(text), "\n")
	return line
}

// loadAverage returns the load average of the last minute, or 0 if it is unknown. A value well
// above 1 or 2 means that other programs were running.
func loadAverage() float64 {
	text, _, _ := strings.Cut(firstLine("/proc/loadavg"), " ")
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0
	}
	return v
}

func versions() (out []string) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return nil
	}
	for _, name := range interesting {
		for _, m := range info.Deps {
			if m.Path == name {
				out = append(out, name+" "+m.Version)
			}
		}
	}
	return out
}
