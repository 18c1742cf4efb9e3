package pgbackend

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/honker-go/honker/honkerpg/internal/pgstore"
	"github.com/honker-go/honker/internal/wake"
)

// Pauses of the notices.
const (
	// noticePause is the shortest time between two notices. Commits in between share the next.
	noticePause = 2 * time.Millisecond
	// nobodyPause replaces it while nobody waits for the signals that were sent. A process that begins to wait looks again after this
	// time, in case it was missed.
	nobodyPause = 50 * time.Millisecond
	// noticeRetry is the pause after an error of the server.
	noticeRetry = time.Second
	// lastNotice limits the time in which Close sends the rest.
	lastNotice = 2 * time.Second
)

// notices tells other processes about the commits of this process.
type notices struct {
	backend *Backend
	process string
	pending atomic.Uint64 // signals that are not sent yet
	kick    chan struct{} // has capacity 1
}

// add adds signals to the next notice.
func (n *notices) add(signals wake.Signals) {
	if n.pending.Or(uint64(signals)) != 0 {
		return
	}
	select {
	case n.kick <- struct{}{}:
	default:
	}
}

// run sends notices until ctx ends, and then the rest.
func (n *notices) run(ctx context.Context) {
	for {
		select {
		case <-n.kick:
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastNotice)
			defer cancel()
			_, _ = n.send(last) // others find the commits when they next look
			return
		}
		pause := nobodyPause
		switch told, err := n.send(ctx); {
		case err != nil:
			pause = noticeRetry
		case told:
			pause = noticePause
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
		if n.pending.Load() != 0 {
			select {
			case n.kick <- struct{}{}:
			default:
			}
		}
	}
}

// send sends the pending signals. They stay pending if it fails.
func (n *notices) send(ctx context.Context) (told bool, err error) {
	signals := n.pending.Swap(0)
	if signals == 0 {
		return false, nil
	}
	conn, err := n.backend.pool.Conn(ctx)
	if err == nil {
		defer conn.Close()
		told, err = pgstore.Notice(context.WithoutCancel(ctx), conn, n.backend.opts.Schema, wake.Signals(signals), n.process)
	}
	if err != nil {
		n.pending.Or(signals)
	}
	return told, err
}
