package honkertest

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/honker-go/honker"
)

// Changes lists the jobs and events that a function has added or removed. All slices are sorted by
// ID.
type Changes struct {
	Jobs   []honker.JobInfo // jobs that are live now but were not before
	Dead   []honker.JobInfo // jobs that died
	Done   []int64          // IDs of jobs that were acked or cancelled, including jobs that the function itself enqueued
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
	lastJob    int64 // highest job ID ever assigned
	lastEvent  int64
}

const sqlLastID = `SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = ?1), 0)`

func readState(ctx context.Context, db *honker.DB) (*state, error) {
	// Use a single transaction, so a job isn't missed while it moves between the tables.
	tx, err := db.SQL().BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return nil, err
	}
	defer func() { _ = tx.Rollback() }()
	s := new(state)
	var errs [4]error
	s.live, errs[0] = readJobs(ctx, tx, allLive)
	s.dead, errs[1] = readJobs(ctx, tx, allDead)
	s.lastJob, errs[2] = number(ctx, tx, sqlLastID, "_honker_live")
	s.lastEvent, errs[3] = number(ctx, tx, sqlLastID, "_honker_stream")
	return s, errors.Join(errs[:]...)
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

const sqlEventsAfter = `SELECT offset, topic, coalesce(key, ''), payload, created_at FROM _honker_stream WHERE offset > ?1 ORDER BY offset`

func readEvents(ctx context.Context, db *honker.DB, after int64) (events []Event, err error) {
	err = each(ctx, db.SQL(), sqlEventsAfter, func(rows *sql.Rows) error {
		var e Event
		var payload []byte
		var created int64
		err := rows.Scan(&e.Offset, &e.Topic, &e.Key, &payload, &created)
		e.Payload, e.CreatedAt = payload, instant(created)
		events = append(events, e)
		return err
	}, after)
	return events, err
}
