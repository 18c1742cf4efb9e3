package backend

import (
	"slices"
	"sync"
	"time"

	"github.com/honker-go/honker/internal/wake"
)

// restEvery is the time between two sweeps. A file is quiet if no connection was used between two sweeps, so its
// connections close five to ten seconds after the last use.
const restEvery = 5 * time.Second

// resters closes connections of quiet files while this process has too many of them. All files share it, because
// they share the process's memory.
var resters = rester{files: map[*File]*rest{}}

// Sweep does what the timer does every five seconds. Tests call it instead of waiting.
func Sweep() { resters.run() }

// rester decides which files must close their connections. It runs on a timer, which is stopped while no connection can
// be closed later, so an idle process is not woken.
type rester struct {
	mu     sync.Mutex
	files  map[*File]*rest
	armed  bool
	sweeps int
}

// rest is the state of a file between two sweeps.
type rest struct {
	uses  int64 // sqlite.Connector.Uses at the last sweep
	since int   // sweep that saw the last use
}

// add registers a file. A file in a testing/synctest bubble is left out, because a timer outside of the bubble must
// not use the bubble's channels.
func (r *rester) add(b *File) {
	if wake.InBubble() {
		return
	}
	r.mu.Lock()
	r.files[b] = &rest{uses: -1}
	r.armLocked()
	r.mu.Unlock()
}

// remove ends the sweeps of a file. A sweep in progress may still call its rest.
func (r *rester) remove(b *File) {
	r.mu.Lock()
	delete(r.files, b)
	r.mu.Unlock()
}

// arm starts the timer. It is called when a connection was opened.
func (r *rester) arm() {
	if wake.InBubble() {
		return
	}
	r.mu.Lock()
	r.armLocked()
	r.mu.Unlock()
}

func (r *rester) armLocked() {
	if !r.armed && len(r.files) > 0 {
		r.armed = true
		time.AfterFunc(restEvery, r.run)
	}
}

func (r *rester) run() {
	quiet, total, exceeded := r.quiet()
	for _, b := range quiet {
		if total > b.opts.IdleConns {
			total -= b.rest()
		}
	}
	for _, b := range quiet { // those that are left in use can close later
		exceeded = exceeded || total > b.opts.IdleConns && b.connector.InUse()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.armed = false
	if exceeded {
		r.armLocked()
	}
}

// quiet returns the quiet files, beginning with the longest unused, and the number of connections of all files.
// exceeded reports whether a file that may still become quiet exceeds its limit.
func (r *rester) quiet() (files []*File, total int, exceeded bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sweeps++
	for b := range r.files {
		total += b.connector.OpenConns()
	}
	for b, last := range r.files {
		if uses := b.connector.Uses(); uses != last.uses {
			last.uses, last.since = uses, r.sweeps
			exceeded = exceeded || total > b.opts.IdleConns
			continue
		}
		files = append(files, b)
	}
	slices.SortFunc(files, func(a, b *File) int { return r.files[a].since - r.files[b].since })
	return files, total, exceeded
}

// rest closes the unused connections of b, and returns how many it closed. The next use opens a connection again. It
// leaves a connection open if the watcher has none: closing the last connection would copy the log into the file and
// delete the log.
func (b *File) rest() int {
	b.resting.Lock()
	defer b.resting.Unlock()
	if b.closed {
		return 0
	}
	b.writer.Rest()
	keep := 1
	if b.version.Connected() {
		keep = 0
	}
	return b.connector.CloseUnused(keep)
}
