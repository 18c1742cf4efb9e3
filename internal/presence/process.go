// Package presence records in the file which Work loops are running, and finds out whether their processes are alive.
// A row is written when a loop starts and deleted when it ends. While the loop runs, the package asks the operating
// system about it, so that an idle worker writes nothing and a process's death is known immediately.
package presence

import (
	"os"
	"runtime/debug"
	"sync"
	"time"

	"github.com/honker-go/honker/internal/row"
)

// Life is the state of a process.
type Life int

// States of a process.
const (
	Unknown Life = iota // in an environment that this process cannot inspect, such as another container
	Alive
	Gone
)

// Forgotten is how long a loop in an unknown process must go unseen before its row is deleted. If the loop is
// alive after all, its next commit writes the row again.
const Forgotten = 24 * time.Hour

// self returns the identity of this process.
var self = sync.OnceValue(func() row.Process {
	p := identify()
	p.Host, _ = os.Hostname() // "" if unknown
	p.PID = int64(os.Getpid())
	return p
})

// LifeOf asks the operating system for a process's state.
//
// All processes that use a file at the same time are on the same machine, because SQLite's WAL needs shared memory. A
// process from an earlier boot is therefore gone. A process ID is valid only within its PID namespace, such as a
// container. Process IDs are reused, but not with the same start time.
func LifeOf(p row.Process) Life {
	me := self()
	switch {
	case p == me && me.Start != 0:
		return Alive
	case p.Boot == "" || me.Boot == "":
		return Unknown
	case p.Boot != me.Boot:
		return Gone
	case p.Space != me.Space || p.PID <= 0:
		return Unknown
	}
	return ask(int(p.PID), p.Start)
}

// left reports whether a loop's row should be deleted.
func left(w row.Worker, life Life, now time.Time) bool {
	return life == Gone || life == Unknown && w.Seen.Before(now.Add(-Forgotten).Truncate(time.Millisecond))
}

// Left returns the rows in all that belong to dead or forgotten processes. It checks each process only once.
func Left(all []row.Worker, now time.Time) (gone []row.Worker) {
	lives := make(map[row.Process]Life)
	for _, w := range all {
		life, asked := lives[w.Process]
		if !asked {
			life = LifeOf(w.Process)
			lives[w.Process] = life
		}
		if left(w, life, now) {
			gone = append(gone, w)
		}
	}
	return gone
}

// version returns this module's version in the running program.
var version = sync.OnceValue(func() string {
	const module = "github.com/honker-go/honker"
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	if info.Main.Path == module {
		return info.Main.Version
	}
	for _, dep := range info.Deps {
		if dep.Path == module {
			return dep.Version
		}
	}
	return ""
})
