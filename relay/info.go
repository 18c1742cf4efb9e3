package relay

import (
	"context"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/store"
)

// QueueInfo is how far a queue has come.
type QueueInfo struct {
	Name       string
	Partitions []PartitionInfo // all of them, from 0 on
	Dead       int64           // dead letters that are neither resolved nor discarded

	// Misplaced are messages in partitions that the queue does not have. Only another program
	// can have put them there, past the library; they are never delivered, and [honker.DB.Check]
	// names them.
	Misplaced int64
}

// PartitionInfo is how far a partition has come. A process that dies leaves its lease behind:
// Owner is then the one that has died, until LeaseUntil has passed and another takes over.
type PartitionInfo struct {
	Partition  int
	Seq        int64     // the number of the last message that was committed; Processed + Waiting
	Processed  int64     // messages that are finished, dead letters included
	Waiting    int64     // messages that are not, those that a handler has at this moment included
	Oldest     time.Time // when the first of those that wait was sent; zero: none waits
	Attempt    int       // how often that was begun
	LastError  string    // why it failed the last time; "": it did not
	RetryAt    time.Time // until then the partition waits after a failure; zero: it does not
	Owner      string    // the running [Relay.Run] that holds it; "": none
	Epoch      int64     // how often it was taken
	LeaseUntil time.Time // zero: nothing holds it
}

// infoStore are the statements that describe queues.
type infoStore interface {
	Info(ctx context.Context, q engine.Querier, queue string, partitions int) ([]row.RelayPartitionInfo, error)
	Misplaced(ctx context.Context, q engine.Querier, queue string, partitions int) (int64, error)
	OpenDead(ctx context.Context, q engine.Querier, queue string) (int64, error)
}

func (q *Queue) describes() infoStore { return store.Relays{Family: q.relay.opts.Family} }

// Info returns how far the queue has come; one that nothing was sent to has come nowhere. It never
// waits for the writer. It reads no message but the first of each partition. To count those that
// wait, and the dead letters, it reads an entry of an index for each: a tenth of a second for a
// million.
func (q *Queue) Info(ctx context.Context) (QueueInfo, error) {
	info, err := q.info(ctx)
	return info, q.fail("info", err)
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
		rows, err := q.describes().Info(ctx, tx, q.name, q.partitions)
		if err != nil {
			return err
		}
		now := time.Now().UnixMilli()
		for _, row := range rows {
			info.Partitions[row.Partition] = newPartitionInfo(row, now)
		}
		if info.Misplaced, err = q.describes().Misplaced(ctx, tx, q.name, q.partitions); err != nil {
			return err
		}
		info.Dead, err = q.describes().OpenDead(ctx, tx, q.name)
		return err
	})
	return info, err
}

func newPartitionInfo(row row.RelayPartitionInfo, nowMS int64) PartitionInfo {
	p := PartitionInfo{
		Partition: int(row.Partition), Seq: row.Processed + row.Waiting, Processed: row.Processed, Waiting: row.Waiting,
		Oldest: engine.InstantMS(row.OldestMS), Attempt: int(row.Attempts), LastError: row.LastError,
		Owner: row.Owner, Epoch: row.Epoch, LeaseUntil: engine.InstantMS(row.LeaseUntilMS),
	}
	if row.RetryMS > nowMS {
		p.RetryAt = engine.InstantMS(row.RetryMS)
	}
	return p
}

// read runs f, unless the queue is not in the file.
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

// write runs f in a transaction, unless the queue is not in the file.
func (q *Queue) write(ctx context.Context, f engine.OpFunc) error {
	if q.err != nil {
		return q.err
	}
	return q.relay.engine.Write(ctx, "", engine.OpFunc(func(ctx context.Context, tx engine.Querier, now time.Time) error {
		if found, err := q.inFile(ctx, tx); err != nil || !found {
			return err
		}
		if _, err := q.relay.store.Bootstrap(ctx, tx, schema); err != nil { // adds what an earlier version lacks
			return err
		}
		return f(ctx, tx, now)
	}))
}

// inFile tells whether the queue is in the file. What only looks at a queue, or changes what it
// has, does not put it there.
func (q *Queue) inFile(ctx context.Context, tx engine.Querier) (bool, error) {
	if known, err := q.known(); known || err != nil {
		return known, err
	}
	s := q.relay.store
	if exists, err := s.Exists(ctx, tx); err != nil || !exists {
		return false, err
	}
	partitions, err := s.Partitions(ctx, tx, q.name)
	if err != nil || partitions == 0 {
		return false, err
	}
	return true, q.compare(partitions)
}
