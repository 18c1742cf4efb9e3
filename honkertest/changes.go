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

// Changes are what a function has added to a file. All slices are in the order of ids.
type Changes struct {
	Jobs   []honker.JobInfo // live jobs that were not live before
	Dead   []honker.JobInfo // dead jobs that were not dead before
	Done   []int64          // jobs that were live before, or were enqueued meanwhile, and are gone: acked or cancelled
	Events []Event          // that were published
}

// Event is an event of a stream.
type Event struct {
	Offset    int64
	Topic     string
	Key       string
	Payload   json.RawMessage
	CreatedAt time.Time
}

// During runs fn and returns what is in the file afterwards that was not there before, of all queues
// and topics. What was rolled back is not. It looks at the file, so whatever else runs meanwhile
// counts too.
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

// state is what is in a file at a moment.
type state struct {
	live, dead []honker.JobInfo
	lastJob    int64 // the last id that was given to a job
	lastEvent  int64
}

const sqlLastID = `SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = ?1), 0)`

func readState(ctx context.Context, db *honker.DB) (*state, error) {
	// In one transaction, so that no job is missed that moves meanwhile.
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

// added are the jobs of after that are not in before.
func added(before, after []honker.JobInfo) (jobs []honker.JobInfo) {
	was := ids(before)
	for _, j := range after {
		if !was[j.ID] {
			jobs = append(jobs, j)
		}
	}
	return jobs
}

// done are the jobs that are gone.
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
