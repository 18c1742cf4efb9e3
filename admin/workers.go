package admin

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/presence"
	"github.com/honker-go/honker/internal/row"
)

// Life is the known state of a worker's process.
type Life string

// States of a worker's process.
const (
	Alive Life = "alive"
	// Gone is a process that ended without ending its Work. It was killed, or its machine stopped.
	Gone Life = "gone"
	// Unknown is a process that cannot be checked from here. It runs in another container or on a system
	// other than Linux and macOS, or it belongs to a foreign worker. See WorkerInfo.Seen and Running
	// instead.
	Unknown Life = "unknown"
)

// WorkerInfo is a worker of a queue.
type WorkerInfo struct {
	ID      string // WorkOptions.WorkerID, or the name given by another binding
	Queue   string
	Host    string // name of the machine or container
	PID     int    // process id, within the container if there is one
	Version string // version of this module; "" if unknown
	Slots   int    // WorkOptions.Workers, the number of concurrent handlers; the queues of a Lanes share them
	Running int    // jobs held by valid claims, including jobs that wait for a handler
	Oldest  int64  // the job among them that was enqueued first; 0 if there is none
	Since   time.Time
	Seen    time.Time // last commit of its process, to the minute; a process that waits for jobs makes no commits
	Alive   Life
	// Foreign reports that the worker is known only by the jobs it holds. It belongs to another binding, to
	// Queue.Claim or Queue.WorkDue, or to a Work that has just started. Host, PID, Version, Slots, Since
	// and Seen are not set. A foreign worker that holds no job is not listed.
	Foreign bool
}

// Workers returns the workers of all queues, by queue and ID. The list has an entry for each queue of each
// Queue.Work, Queue.WorkTx, Lanes.Work and Outbox.Run in any process. It also has the workers of other
// bindings while they hold jobs.
//
// A Work is listed from 20 to 50 ms after its start, or later if the writer is busy, until it ends. A
// killed worker is [Gone] at once. It is removed from the list when another worker starts or when
// [honker.DB.Maintain] runs next. An [Unknown] worker is removed when it has not been seen for a day.
//
// Workers lists at most 10,000 workers and examines at most 10,000 jobs. It never waits for the writer. It
// returns [honker.ErrInvalid] if db is nil.
func Workers(ctx context.Context, db *honker.DB) ([]WorkerInfo, error) {
	var all []WorkerInfo
	err := read(ctx, db, func(ctx context.Context, q engine.Querier, s *engine.Stores) (err error) {
		all, err = workersOf(ctx, q, s.Workers, "", time.Now())
		return err
	})
	if err != nil {
		return nil, engine.Wrap("list workers", "", err)
	}
	return all, nil
}

// workersOf returns the workers of a queue, or of all queues if queue is "". It checks each process only
// once.
func workersOf(ctx context.Context, q engine.Querier, workers engine.WorkerStore, queue string, now time.Time) ([]WorkerInfo, error) {
	rows, err := workers.List(ctx, q, queue)
	if err != nil {
		return nil, err
	}
	holders, err := workers.Holders(ctx, q, queue, now)
	if err != nil {
		return nil, err
	}
	type key struct{ id, queue string }
	held := make(map[key]row.Holder, len(holders))
	for _, h := range holders {
		held[key{h.Worker, h.Queue}] = h
	}
	lives := make(map[row.Process]Life)
	all := make([]WorkerInfo, 0, len(rows))
	for _, row := range rows {
		k := key{row.ID, row.Queue}
		all = append(all, workerOf(row, held[k], lives))
		delete(held, k)
	}
	for k, h := range held {
		all = append(all, WorkerInfo{ID: k.id, Queue: k.queue, Running: int(h.Jobs), Oldest: h.Oldest, Alive: Unknown, Foreign: true})
	}
	slices.SortFunc(all, func(a, b WorkerInfo) int {
		return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.ID, b.ID))
	})
	return all, nil
}

func workerOf(row row.Worker, h row.Holder, lives map[row.Process]Life) WorkerInfo {
	if lives[row.Process] == "" {
		lives[row.Process] = lifeOf(row.Process)
	}
	return WorkerInfo{
		ID: row.ID, Queue: row.Queue, Host: row.Host, PID: int(row.PID), Version: row.Version, Slots: int(row.Slots),
		Running: int(h.Jobs), Oldest: h.Oldest,
		Since: row.Since, Seen: row.Seen,
		Alive: lives[row.Process],
	}
}

func lifeOf(p row.Process) Life {
	switch presence.LifeOf(p) {
	case presence.Alive:
		return Alive
	case presence.Gone:
		return Gone
	default:
		return Unknown
	}
}
