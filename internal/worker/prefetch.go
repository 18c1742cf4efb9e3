package worker

import "time"

const (
	// prefetchLimit is the maximum number of claimed jobs that have not started.
	prefetchLimit = 512
	// prefetchBytes is the maximum size of their payloads, estimated from the mean of the last
	// batch.
	prefetchBytes = 4 << 20
	// prefetchTimeout is the time that such a job may wait for a worker. After that it is released:
	// handlers have become slow, and another process may be idle.
	prefetchTimeout = 200 * time.Millisecond
	// prefetchWindow is the period over which finished jobs are counted. As many jobs as finish
	// within it are claimed ahead. While a batch commits, the jobs of the batch before run, so a batch has half of the jobs
	// that are held.
	prefetchWindow = 10 * time.Millisecond
	// batchLimit is the maximum number of jobs that a batch claims, because other writers wait while it commits.
	batchLimit = 256
)

// Prefetch decides how many jobs or events to claim ahead. It counts jobs that finish within a
// window. The zero Prefetch is ready to use.
type Prefetch struct {
	since time.Time
	count int
	last  int // count of the previous window
	bytes int // mean payload size in the last batch

	// window is the period over which jobs are counted if it is longer than prefetchWindow. A slow server gets larger
	// batches.
	window time.Duration
}

// Saw records a batch of n payloads with the total size bytes.
func (f *Prefetch) Saw(bytes, n int) { f.bytes = bytes / n }

// Size adds done to the count and returns how many jobs to claim ahead. It uses the larger count of
// the current and the previous window, so that the beginning of a window does not stop prefetching.
func (f *Prefetch) Size(now time.Time, done int) int {
	f.count += done
	window := max(prefetchWindow, f.window)
	if elapsed := now.Sub(f.since); elapsed >= window {
		f.last = int(int64(f.count) * int64(window) / int64(elapsed))
		f.since, f.count = now, 0
	}
	return min(max(f.last, f.count), prefetchLimit, prefetchBytes/max(f.bytes, 1))
}
