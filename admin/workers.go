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
	"github.com/honker-go/honker/internal/store"
)

// Life is what is known of the process of a worker.
type Life string

// What may be known.
const (
	Alive Life = "alive"
	// Gone is a process that has ended, and did not end its Work before: it was killed, or the machine was.
	Gone Life = "gone"
	// Unknown is one that cannot be looked for from this process: it runs in another container, on a system
	// other than Linux and macOS, or is a worker that does not say where it runs. WorkerInfo.Seen and Running tell
	// what there is to know.
	Unknown Life = "unknown"
)

// WorkerInfo is a worker of a queue.
type WorkerInfo struct {
	ID      string // WorkOptions.WorkerID, or as another binding calls it
	Queue   string
	Host    string // as its machine or container is called
	PID     int    // in its container, if it is in one
	Version string // of this module; "": unknown
	Slots   int    // WorkOptions.Workers: handlers at once. Those of Lanes are for all of their queues together
	Running int    // jobs that it holds by valid claims, those included that wait in it for a handler
	Oldest  int64  // the one of them that was enqueued first; 0: none
	Since   time.Time
	Seen    time.Time // of its process, to the minute, by a commit of any kind: one that waits for jobs makes none
	Alive   Life
	// Foreign is a worker that is known by the jobs that it holds alone: of another binding, of Queue.Claim or
	// Queue.WorkDue, or of a Work that has just begun. It has no Host, PID, Version, Slots, Since and Seen, and is not listed while it holds nothing.
	Foreign bool
}

// workerStore are the statements about workers.
type workerStore interface {
	List(ctx context.Context, q engine.Querier, queue string) ([]row.Worker, error)
	Holders(ctx context.Context, q engine.Querier, queue string, now int64) ([]row.Holder, error)
}

var workers workerStore = store.Workers{}

// Workers returns the workers of each queue, by queue and ID: each Queue.Work, Queue.WorkTx, Lanes.Work and
// Outbox.Run of any process, once for each of its queues, and the workers of other bindings while they
// hold jobs. A Work is in it from 20 to 50 ms after its start, unless the writer is busy then, until it has ended.
// One that was killed is [Gone] at once, and out of the list with the next worker that starts, or the next round of
// [honker.DB.Maintain]; one with an [Unknown] life when it has not been seen for a day.
//
// At most 10,000 workers are listed, and 10,000 jobs looked at. It never waits for the writer. nil as the DB is
// [honker.ErrInvalid].
func Workers(ctx context.Context, db *honker.DB) ([]WorkerInfo, error) {
	var all []WorkerInfo
	err := read(ctx, db, func(ctx context.Context, q engine.Querier) (err error) {
		all, err = workersOf(ctx, q, "", time.Now())
		return err
	})
	if err != nil {
		return nil, engine.Wrap("list workers", "", err)
	}
	return all, nil
}

// workersOf reads the workers of a queue, "" for all. Each process is looked for once.
func workersOf(ctx context.Context, q engine.Querier, queue string, now time.Time) ([]WorkerInfo, error) {
	rows, err := workers.List(ctx, q, queue)
	if err != nil {
		return nil, err
	}
	holders, err := workers.Holders(ctx, q, queue, now.Unix())
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
		Since: engine.InstantMS(row.SinceMS), Seen: engine.InstantMS(row.SeenMS),
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
