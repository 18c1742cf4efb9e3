package backend

import (
	"context"
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

// Every crowd-th opening of a connection is preceded by an early sweep, which leaves files alone that had more than
// littleUsed uses. To open a file and to start a worker and a listener on it are sixteen.
const (
	crowd      = 16
	littleUsed = 64
)

// rester decides which files must close their connections. It runs on a timer, which is stopped while no connection can
// be closed later, so an idle process is not woken.
//
// A process that opens many files would have all of their connections before the timer's first sweep, and the driver's
// allocator would keep most of their memory. So the goroutines that open connections sweep, too, which also slows them
// down. These early sweeps close connections of little-used files only: a file in regular use would open its connections
// again and again.
type rester struct {
	mu     sync.Mutex
	files  map[*File]*rest
	armed  bool
	sweeps int
	opened int // connections since the last early sweep
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

// opening is called when a connection is about to be opened.
func (r *rester) opening() {
	if wake.InBubble() {
		return
	}
	r.mu.Lock()
	r.armLocked()
	r.opened++
	crowded := r.opened >= crowd
	if crowded {
		r.opened = 0
	}
	r.mu.Unlock()
	if crowded {
		r.closeQuiet(true)
	}
}

func (r *rester) armLocked() {
	if !r.armed && len(r.files) > 0 {
		r.armed = true
		time.AfterFunc(restEvery, r.run)
	}
}

// run is the sweep of the timer.
func (r *rester) run() {
	again := r.closeQuiet(false)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.armed = false
	if again {
		r.armLocked()
	}
}

// closeQuiet closes connections of quiet files while there are too many. It reports whether a connection can be closed
// later.
func (r *rester) closeQuiet(early bool) (later bool) {
	quiet, total, later := r.quiet(early)
	for _, b := range quiet {
		if total > b.opts.IdleConns {
			total -= b.rest()
		}
	}
	for _, b := range quiet { // those that are left in use can close later
		later = later || total > b.opts.IdleConns && b.connector.InUse()
	}
	return later
}

// quiet returns the quiet files, beginning with the longest unused, and the number of connections of all files.
// exceeded reports whether a file that may still become quiet exceeds its limit. An early sweep sees little-used files only.
func (r *rester) quiet(early bool) (files []*File, total int, exceeded bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sweeps++
	for b := range r.files {
		total += b.connector.OpenConns()
	}
	for b, last := range r.files {
		uses := b.connector.Uses()
		if early && uses > littleUsed {
			continue
		}
		if uses != last.uses {
			last.uses, last.since = uses, r.sweeps
			exceeded = exceeded || total > b.opts.IdleConns
			continue
		}
		files = append(files, b)
	}
	slices.SortFunc(files, func(a, b *File) int { return r.files[a].since - r.files[b].since })
	return files, total, exceeded
}

// rest closes the unused connections of b, and returns how many it closed. The next use opens a connection again. The
// watcher's connection stays, and is opened if nothing has waited yet: closing the last connection would copy the log
// into the file and delete the log.
func (b *File) rest() int {
	b.resting.Lock()
	defer b.resting.Unlock()
	if b.closed || b.connector.OpenConns() == 0 {
		return 0
	}
	b.writer.Rest()
	keep := 0
	if _, err := b.version.Version(context.Background()); err != nil {
		keep = 1
	}
	return b.connector.CloseUnused(keep)
}
