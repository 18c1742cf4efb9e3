package sqlite

import (
	"os"
	"sync"
)

// writeback has the log on its way to the disk before a checkpoint waits for it: that
// keeps all writers waiting, for milliseconds if a thousand pages are still in memory.
// The connections of a connector share one. A commit asks for it now and then, after the
// gate was left, so that the next writer is at work meanwhile.
//
// To ask waits for no disk unless its queue is full. Nothing is safe sooner: with
// synchronous=NORMAL a commit still is at the next checkpoint. Where pages must not change
// while they are written (btrfs, RAID 5), the next commit may wait for its first.
type writeback struct {
	log string // its path; "": never ask

	mu    sync.Mutex
	conns int      // open connections
	file  *os.File // the log; there are no locks on it, which closing it would drop
}

const writebackEvery = 16 // commits: with small ones, some dozens of pages

// connected counts a connection that was opened.
func (w *writeback) connected() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conns++
}

// disconnected counts a connection that was closed. With the last one the log goes: its
// descriptor would keep the blocks of a deleted file.
func (w *writeback) disconnected() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conns--
	if w.conns == 0 && w.file != nil {
		_ = w.file.Close()
		w.file = nil
	}
}

// committed is called after commit number n of the connector, by a connection that is
// open.
func (w *writeback) committed(n int64) {
	if w.log == "" || n%writebackEvery != 0 {
		return
	}
	if !w.mu.TryLock() {
		return // another commit is asking: this one has nothing to add
	}
	defer w.mu.Unlock()
	if w.file == nil {
		w.file, _ = os.Open(w.log) // there is none with a rollback journal
	}
	if w.file != nil {
		_ = startWriteback(w.file)
	}
}
