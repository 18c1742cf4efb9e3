package relay

import (
	"context"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// QueueInfo describes the progress of a queue.
type QueueInfo struct {
	Name       string
	Partitions []PartitionInfo // all partitions, sorted by number
	Dead       int64           // dead letters that are neither resolved nor discarded

	// Misplaced is the number of messages in partitions outside the queue's range. Only programs
	// that bypass this package can insert them. They are never delivered, and [honker.DB.Check]
	// reports them.
	Misplaced int64
}

// PartitionInfo describes the progress of a partition. A crashed process keeps its lease until
// LeaseUntil, so Owner may name a process that no longer exists.
type PartitionInfo struct {
	Partition  int
	Seq        int64     // sequence number of the last committed message; Processed + Waiting
	Processed  int64     // finished messages, including dead letters
	Waiting    int64     // unfinished messages, including messages being handled
	Oldest     time.Time // when the first waiting message was sent; zero if none is waiting
	Attempt    int       // attempts at the first waiting message
	LastError  string    // error of the last attempt; empty if it did not fail
	RetryAt    time.Time // end of the pause after a failure; zero if the partition is not paused
	Owner      string    // the [Relay.Run] that holds the lease; empty if none
	Epoch      int64     // number of batches taken so far
	LeaseUntil time.Time // end of the lease; zero if there is none
}

// Info returns the progress of the queue. If nothing has ever been sent to the queue, all counts
// are 0. Info never waits for the writer. It reads only the first message of each partition. To
// count waiting messages and dead letters it reads an index entry for each of them, which takes
// about a tenth of a second per million.
func (q *Queue) Info(ctx context.Context) (QueueInfo, error) {
	info, err := q.info(ctx)
	return info, q.fail("read info", err)
}

func (q *Queue) info(ctx context.Context) (QueueInfo, error) {
	if q.err != nil {
		return QueueInfo{}, q.err
	}
	info := QueueInfo{Name: q.name, Partitions: make([]PartitionInfo, q.partitions)}
	for i := range info.Partitions {
		info.Partitions[i].Partition = i
	}
	err := q.read(ctx, func(ctx context.Context, tx engine.Querier) (err error) {
		found, err := q.relay.store.Info(ctx, tx, q.name, q.partitions)
		if err != nil {
			return err
		}
		now := q.relay.engine.Now()
		for _, row := range found.Partitions {
			info.Partitions[row.Partition] = newPartitionInfo(row, now)
		}
		info.Misplaced, info.Dead = found.Misplaced, found.OpenDead
		return nil
	})
	return info, err
}

func newPartitionInfo(row row.RelayProgressInfo, now time.Time) PartitionInfo {
	p := PartitionInfo{
		Partition: int(row.Partition), Seq: row.Processed + row.Waiting, Processed: row.Processed, Waiting: row.Waiting,
		Oldest: row.Oldest, Attempt: int(row.Attempts), LastError: row.LastError,
		Owner: row.Owner, Epoch: row.Epoch, LeaseUntil: row.LeaseUntil,
	}
	if row.RetryAt.After(now) {
		p.RetryAt = row.RetryAt
	}
	return p
}

// read runs f with a snapshot of the database. If the queue is not registered, it does nothing.
func (q *Queue) read(ctx context.Context, f func(ctx context.Context, tx engine.Querier) error) error {
	if q.err != nil {
		return q.err
	}
	return q.relay.engine.Read(ctx, func(ctx context.Context, tx engine.Querier) error {
		if found, err := q.inFile(ctx, tx); err != nil || !found {
			return err
		}
		return f(ctx, tx)
	})
}

// write runs f in a transaction. If the queue is not registered, it does nothing.
func (q *Queue) write(ctx context.Context, f engine.OpFunc) error {
	if q.err != nil {
		return q.err
	}
	return q.relay.engine.Write(ctx, "", engine.OpFunc(func(ctx context.Context, tx engine.Querier, now time.Time) error {
		if found, err := q.inFile(ctx, tx); err != nil || !found {
			return err
		}
		return f(ctx, tx, now)
	}))
}

// inFile reports whether the queue is registered in the database. Only sending and Run register a
// queue; reading it or changing its dead letters does not.
func (q *Queue) inFile(ctx context.Context, tx engine.Querier) (bool, error) {
	if known, err := q.known(); known || err != nil {
		return known, err
	}
	partitions, _, err := q.relay.store.Partitions(ctx, tx, q.name)
	if err != nil || partitions == 0 {
		return false, err
	}
	return true, q.compare(partitions)
}
