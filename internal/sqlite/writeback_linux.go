//go:build !arm

package sqlite

import (
	"os"
	"syscall"
)

// writeback has the log on its way to the disk before a checkpoint waits for it: that
// keeps all writers waiting, for milliseconds if a thousand pages are still in memory.
// Each connection asks for it now and then, after a commit of its own and past the gate.
// That waits for no disk unless its queue is full; nothing is safe sooner, with
// synchronous=NORMAL a commit still is at the next checkpoint. Where pages must not change
// while they are written (btrfs, RAID 5), the next commit may wait for its first.
type writeback struct {
	log     string // its path; "": each commit waits for the disk by itself
	commits int
	file    *os.File // the log; there are no locks on it, which closing it would drop
}

const writebackEvery = 16 // commits: with small ones, some dozens of pages

func (w *writeback) committed() {
	if w.commits++; w.log == "" || w.commits%writebackEvery != 0 {
		return
	}
	if w.file == nil {
		w.file, _ = os.Open(w.log) // none with a rollback journal
	}
	if w.file != nil {
		_ = begin(w.file)
	}
}

const rangeWrite = 2 // SYNC_FILE_RANGE_WRITE

// begin starts to write what is in memory of f.
func begin(f *os.File) error { return syscall.SyncFileRange(int(f.Fd()), 0, 0, rangeWrite) }

func (w *writeback) close() {
	if w.file != nil {
		_ = w.file.Close()
		w.file = nil
	}
}
