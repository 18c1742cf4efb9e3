package honker

import (
	"log/slog"
)

// Logger returns a logger of this attempt: what it was doing when it failed. If the attempt ends with an error, the last
// 64 KiB of its lines are saved in the commit that settles it, for Attempts of package admin and honker job logs; otherwise
// they are dropped, as they are when the process is killed: they are for reading, not evidence. All levels are
// kept. It writes nowhere else: for a log of yours as well, join their handlers by [slog.NewMultiHandler].
//
// It never blocks on the file, and is safe for concurrent use. A job on which it is not called pays nothing.
func (j *Job[T]) Logger() *slog.Logger {
	if j.claim == nil {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(j.claim.Log(), &slog.HandlerOptions{Level: slog.LevelDebug}))
}
