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

// Life indicates whether a worker's process is alive.
type Life string

// States of a worker's process.
const (
	Alive Life = "alive"
	// Gone means that the process ended without shutting down its Work, because it was killed or
	// its machine stopped.
	Gone Life = "gone"
	// Unknown means that the process cannot be checked from here. It runs in another container or on a
	// system other than Linux and macOS, or it belongs to a foreign worker. Use WorkerInfo.Seen and
	// Running as hints instead.
	Unknown Life = "unknown"
)

// WorkerInfo is a worker of a queue.
type WorkerInfo struct {
	ID      string // WorkOptions.WorkerID, or the name given by another binding
	Queue   string
	Host    string // host name of the machine or container
	PID     int    // process ID, within the container if there is one
	Version string // version of this module; "" if unknown
	Slots   int    // WorkOptions.Workers, the number of concurrent handlers; shared by the queues of a honker.Workers
	Running int    // jobs with valid claims, including jobs waiting for a free handler
	Oldest  int64  // lowest ID among these jobs; 0 if there are none
	Since   time.Time
	Seen    time.Time // time of the process's last commit, to the minute; an idle process makes no commits
	Alive   Life
	// Foreign is set if the worker is known only from the jobs that it holds. It belongs to another binding,
	// to Queue.Claim or Queue.WorkDue, or to a Work call that has just started. Host, PID, Version, Slots,
	// Since and Seen are not set. Foreign workers without jobs are not listed.
	Foreign bool
}

// Workers returns the workers of all queues, sorted by queue and ID. The list has an entry for each queue of
// every Queue.Work, Queue.WorkTx, Workers.Work and Outbox.Run in any process. Workers in other bindings are
// included while they hold jobs.
//
// A worker appears 20 to 50 ms after it starts, or later if the writer is busy, and disappears when its Work
// ends. A killed worker is [Gone] immediately. It is removed from the list when another process starts a
// worker or when [honker.DB.Maintain] runs next. An [Unknown] worker is removed if it has not been seen for a
// day.
//
// Workers lists at most 10,000 workers and examines at most 10,000 jobs. It never waits for the writer. It
// returns [honker.ErrInvalid] if db is nil.
func Workers(ctx context.Context, db *honker.DB) ([]WorkerInfo, error) {
	var all []WorkerInfo
	err := read(ctx, db, func(ctx context.Context, q engine.Querier, s *engine.Stores) (err error) {
		all, err = workersOf(ctx, q, s.Workers, "", clock(db))
		return err
	})
	if err != nil {
		return nil, engine.Wrap("list workers", "", err)
	}
	return all, nil
}

// workersOf returns a queue's workers, or those of all queues if queue is "". It checks each process only
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
