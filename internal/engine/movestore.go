package engine

import (
	"context"
	"time"

	"github.com/honker-go/honker/internal/row"
)

// MoveStore contains the statements that take rows out of a file for another database. Rows are passed as JSON, whose form
// the statements of both databases know. The methods with a token return [ErrBusy] if another mover has called Begin since.
type MoveStore interface {
	// Origin describes the file, and returns the target of an earlier move, or "".
	Origin(ctx context.Context, q Querier) (s row.MoveSource, target string, err error)
	// Begin prepares the file for a mover, which replaces an earlier one. Without a token, it only gives the file
	// an ID.
	Begin(ctx context.Context, q Querier, m row.Mover) (row.MoveSource, error)
	// Take deletes the next jobs that may be moved, and stores them as a parcel. Jobs that are linked to each other
	// are in the same parcel. Take returns the position of the next call. A call may find no jobs before the walk
	// is over.
	Take(ctx context.Context, q Querier, token string, w row.MoveWalk, now time.Time) (p row.Parcel, after row.MoveWalk, err error)
	// Parcel returns the first stored parcel. Its number is 0 if there is none.
	Parcel(ctx context.Context, q Querier) (row.Parcel, error)
	// Arrived deletes a stored parcel.
	Arrived(ctx context.Context, q Querier, token string, n int64) error
	// Settings returns the pauses, limits and retentions. nil lists select all queues and topics.
	Settings(ctx context.Context, q Querier, queues, topics []string) (string, error)
	// Unique returns up to limit unique keys that are taken, and follow the queue and key in after.
	Unique(ctx context.Context, q Querier, after [2]string, limit int, now time.Time) (row.MovePart, error)
	// Received returns up to limit messages of package inbox that follow the source and ID in after.
	Received(ctx context.Context, q Querier, after [2]string, limit int, now time.Time) (row.MovePart, error)
	// Topics returns the topics that have events.
	Topics(ctx context.Context, q Querier) ([]row.MoveTopic, error)
	// Events returns up to limit events of a topic with offsets above after.
	Events(ctx context.Context, q Querier, topic string, after int64, limit int) (row.MovePart, error)
	// Readers returns the consumers and groups of topics. A nil list selects all.
	Readers(ctx context.Context, q Querier, topics []string) (string, error)
	// Left counts the jobs that are in the file.
	Left(ctx context.Context, q Querier, now time.Time) ([]row.MoveQueue, error)
	// Relays returns the queues of the relays.
	Relays(ctx context.Context, q Querier, now time.Time) ([]row.MoveRelay, error)
	// Relay closes the free partitions of a relay's queue for handlers, and the others when their leases end. It
	// deletes the next messages of closed partitions and the dead letters that nobody holds, and stores them as a
	// parcel. When there is no more, leased is the number of partitions that handlers hold.
	Relay(ctx context.Context, q Querier, token, family, queue string, limit int, now time.Time) (p row.Parcel, leased int64, err error)
}
