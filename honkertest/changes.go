package honkertest

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// Changes lists the jobs and events that a function has added or removed. All slices are sorted by
// ID.
type Changes struct {
	Jobs   []honker.JobInfo // jobs that are live now but were not before
	Dead   []honker.JobInfo // jobs that died
	Done   []int64          // IDs of jobs that were acked or cancelled; on a file, including jobs that the function itself enqueued
	Events []Event          // published events
}

// Event is a stream event.
type Event struct {
	Offset    int64
	Topic     string
	Key       string
	Payload   json.RawMessage
	CreatedAt time.Time
}

// During runs fn and returns the changes to all of db's queues and topics. Writes that were rolled
// back are not included. During compares the state of the database before and after fn, so writes
// by other goroutines and processes are included.
//
// On Postgres, Done has only jobs that existed before. IDs have gaps there, so During cannot tell an
// ID that was never used from that of a job that the function has enqueued and finished.
func During(t testing.TB, db *honker.DB, fn func()) Changes {
	t.Helper()
	before, err := readState(t.Context(), db)
	if err != nil {
		t.Fatalf("honkertest: %v", err)
	}
	fn()
	after, err := readState(t.Context(), db)
	if err != nil {
		t.Fatalf("honkertest: %v", err)
	}
	c := Changes{Jobs: added(before.live, after.live), Dead: added(before.dead, after.dead), Done: done(before, after)}
	if c.Events, err = readEvents(t.Context(), db, before.lastEvent); err != nil {
		t.Fatalf("honkertest: %v", err)
	}
	return c
}

// state is a snapshot of the jobs and of the highest IDs assigned so far.
type state struct {
	live, dead []honker.JobInfo
	lastJob    int64 // highest job ID ever assigned on a file; 0 on a server
	lastEvent  int64
}

const sqlLastJob = `SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = '_honker_live'), 0)`

func readState(ctx context.Context, db *honker.DB) (*state, error) {
	e := engine.Of(db)
	s := new(state)
	var jobs []honker.JobInfo
	// A snapshot doesn't miss a job that moves between the tables.
	err := e.Snapshot(ctx, func(ctx context.Context, q engine.Querier) error {
		var errs [3]error
		jobs, errs[0] = readJobs(ctx, e, q, liveAndDead)
		s.lastEvent, errs[1] = e.Stores.Streams.Head(ctx, q)
		if isFile(db) {
			s.lastJob, errs[2] = number(ctx, q, sqlLastJob)
		}
		return errors.Join(errs[:]...)
	})
	for _, j := range jobs {
		if j.State == honker.StateDead {
			s.dead = append(s.dead, j)
		} else {
			s.live = append(s.live, j)
		}
	}
	return s, err
}

// added returns the jobs in after that are not in before.
func added(before, after []honker.JobInfo) (jobs []honker.JobInfo) {
	was := ids(before)
	for _, j := range after {
		if !was[j.ID] {
			jobs = append(jobs, j)
		}
	}
	return jobs
}

// done returns the IDs of jobs that existed before, or were enqueued since, and no longer exist.
func done(before, after *state) (gone []int64) {
	live, dead := ids(after.live), ids(after.dead)
	for id := range ids(before.live) {
		if !live[id] && !dead[id] {
			gone = append(gone, id)
		}
	}
	for id := before.lastJob + 1; id <= after.lastJob; id++ {
		if !live[id] && !dead[id] {
			gone = append(gone, id)
		}
	}
	slices.Sort(gone)
	return gone
}

func ids(jobs []honker.JobInfo) map[int64]bool {
	all := make(map[int64]bool, len(jobs))
	for _, j := range jobs {
		all[j.ID] = true
	}
	return all
}

// readEvents returns the events of all topics with offsets above after.
func readEvents(ctx context.Context, db *honker.DB, after int64) (events []Event, err error) {
	e := engine.Of(db)
	err = e.Read(ctx, func(ctx context.Context, q engine.Querier) error {
		events = nil
		for r := (row.EventRead{Selection: row.Selection{Topic: "*"}, After: after, Through: row.Unbounded, Limit: part}); ; {
			page, err := e.Stores.Streams.Read(ctx, q, r, nil)
			if err != nil {
				return err
			}
			for _, read := range page.Events {
				events = append(events, Event{read.Offset, read.Topic, read.Key, json.RawMessage(read.Payload), read.CreatedAt})
			}
			if page.Next <= r.After {
				return nil
			}
			r.After, r.Scanned = page.Next, page.Scanned
		}
	})
	return events, err
}
