// Package presence tells, in the file, which Work loops run, and whether the process of one still lives.
// A row is written when a loop starts and deleted when it ends; in between the operating system
// is asked, so that a worker that waits writes nothing, and one that was killed is known at once.
package presence

import (
	"os"
	"runtime/debug"
	"sync"
	"time"

	"github.com/honker-go/honker/internal/store"
)

// Life is what is known of a process.
type Life int

// What may be known.
const (
	Unknown Life = iota // it runs where this process cannot look, such as in another container
	Alive
	Gone
)

// Forgotten is how long a loop with an unknown life was not seen when its row is deleted. One that
// lives after all writes its row again with its next commit.
const Forgotten = 24 * time.Hour

// self is this process.
var self = sync.OnceValue(func() store.Process {
	p := identify()
	p.Host, _ = os.Hostname() // "": unknown
	p.PID = int64(os.Getpid())
	return p
})

// LifeOf asks the operating system for a process.
//
// All programs that use a file at the same time are on one machine, since SQLite's log needs memory that they share.
// So one of another boot is gone. An id counts in its own space only: that of a container says
// nothing outside of it. An id is given again, but not with the same time of start.
func LifeOf(p store.Process) Life {
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

// left reports that the row of a loop is to be deleted.
func left(w store.Worker, life Life, now time.Time) bool {
	return life == Gone || life == Unknown && w.SeenMS < now.Add(-Forgotten).UnixMilli()
}

// Left are those of all that a process has left behind. Each process is asked for once.
func Left(all []store.Worker, now time.Time) (gone []store.Worker) {
	lives := make(map[store.Process]Life)
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

// version is that of this module in the program.
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
