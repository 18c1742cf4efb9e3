package sqlite

import (
	"os"
	"sync"
)

// writeback starts writing the WAL to disk before a checkpoint has to wait for it. A checkpoint blocks all writers,
// and if a thousand pages are still in memory, it does so for milliseconds. A connector's connections share a
// writeback. It is triggered every few commits, after the commit has left the gate, so that the next writer can
// already be running.
//
// Triggering it doesn't wait for the disk unless the disk's queue is full. It doesn't make commits durable any
// earlier: with synchronous=NORMAL they are durable at the next checkpoint. On storage where pages must not change
// while they are written (btrfs, RAID 5), the next commit may have to wait for the write.
type writeback struct {
	log string // path of the WAL; "" to disable writeback

	mu    sync.Mutex
	conns int      // open connections
	file  *os.File // the WAL; has no locks that closing it would drop
}

const writebackEvery = 16 // commits; a few dozen pages if the commits are small

// connected counts an opened connection.
func (w *writeback) connected() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conns++
}

// disconnected counts a closed connection. After the last connection is closed, it closes the WAL, because an open
// descriptor would keep the deleted file's disk blocks in use.
func (w *writeback) disconnected() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conns--
	if w.conns == 0 && w.file != nil {
		_ = w.file.Close()
		w.file = nil
	}
}

// committed is called by an open connection after the connector's nth commit.
func (w *writeback) committed(n int64) {
	if w.log == "" || n%writebackEvery != 0 {
		return
	}
	if !w.mu.TryLock() {
		return // another commit is already doing this
	}
	defer w.mu.Unlock()
	if w.file == nil {
		w.file, _ = os.Open(w.log) // with a rollback journal there is no WAL
	}
	if w.file != nil {
		_ = startWriteback(w.file)
	}
}
