package admin

import (
	"context"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// RelayInfo describes a queue of package relay.
type RelayInfo struct {
	Family     string // see relay.Options; "" if none
	Queue      string
	Partitions int
	Waiting    int64     // unfinished messages
	Oldest     time.Time // when the oldest waiting message was sent; zero if none is waiting
	Dead       int64     // dead letters that are neither resolved nor discarded
	Blocked    int       // partitions that wait for a retry after a failure
	Attempts   int64     // the most attempts at the first message of a partition

	Progress []RelayProgress // of each partition, by number
}

// RelayProgress describes a partition of a relay queue.
type RelayProgress struct {
	Partition  int
	Processed  int64     // finished messages, including dead letters
	Waiting    int64     // unfinished messages, including messages being handled
	Oldest     time.Time // when the first waiting message was sent; zero if none is waiting
	Attempts   int64     // attempts at the first waiting message
	LastError  string    // error of the last attempt; "" if it did not fail
	RetryAt    time.Time // end of the backoff after a failure; zero if the partition is not backing off
	Owner      string    // the running relay.Relay.Run that holds the partition; "" if none
	Epoch      int64     // number of times the partition was taken
	LeaseUntil time.Time // end of the lease; zero if there is none
}

// Relays returns the queues of all relays, sorted by family and name. It reads an index entry for each waiting message
// and each dead letter, which takes about a tenth of a second per million, and never waits for the writer. It returns
// [honker.ErrInvalid] if db is nil.
func Relays(ctx context.Context, db *honker.DB) ([]RelayInfo, error) {
	var all []RelayInfo
	err := read(ctx, db, func(ctx context.Context, q engine.Querier, s *engine.Stores) error {
		all = nil
		queues, err := s.Relays.Registered(ctx, q)
		for _, r := range queues {
			found, err := s.Relays.Family(r.Family).Info(ctx, q, r.Queue, r.Partitions)
			if err != nil {
				return err
			}
			all = append(all, relayOf(r, found, clock(db)))
		}
		return err
	})
	if err != nil {
		return nil, engine.Wrap("list relays", "", err)
	}
	return all, nil
}

// relayOf sums up the partitions of a queue.
func relayOf(r row.RelayRegistered, found row.RelayInfo, now time.Time) RelayInfo {
	info := RelayInfo{Family: r.Family, Queue: r.Queue, Partitions: r.Partitions, Dead: found.OpenDead}
	info.Progress = make([]RelayProgress, r.Partitions)
	for i := range info.Progress {
		info.Progress[i].Partition = i
	}
	for _, p := range found.Partitions {
		info.Progress[p.Partition] = progressOf(p, now)
		info.Waiting += p.Waiting
		if info.Oldest.IsZero() || !p.Oldest.IsZero() && p.Oldest.Before(info.Oldest) {
			info.Oldest = p.Oldest
		}
		if p.RetryAt.After(now) {
			info.Blocked++
		}
		if p.Waiting > 0 {
			info.Attempts = max(info.Attempts, p.Attempts)
		}
	}
	return info
}

func progressOf(p row.RelayProgressInfo, now time.Time) RelayProgress {
	out := RelayProgress{
		Partition: int(p.Partition), Processed: p.Processed, Waiting: p.Waiting, Oldest: p.Oldest, Attempts: p.Attempts, LastError: p.LastError,
		Owner: p.Owner, Epoch: p.Epoch, LeaseUntil: p.LeaseUntil,
	}
	if p.RetryAt.After(now) {
		out.RetryAt = p.RetryAt
	}
	return out
}
