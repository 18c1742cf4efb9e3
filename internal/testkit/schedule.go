package testkit

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
)

// Leader returns the owner and expiry of the scheduler's lock, or zero values if the lock is not
// held.
func Leader(t testing.TB, db *honker.DB) (owner string, expires int64) {
	t.Helper()
	err := db.SQL().QueryRowContext(context.Background(), on(db.SQL(), getLeader)).Scan(&owner, &expires)
	if !errors.Is(err, sql.ErrNoRows) {
		require.NoError(t, err)
	}
	return owner, expires
}

// ScheduleRow is a row of the schedule table. Types holds the SQLite types of the text columns.
type ScheduleRow struct {
	Name, Queue, Spec, Payload string
	Priority                   int64
	Expires                    sql.NullInt64
	Attempts, Next, Enabled    int64
	Types                      string
}

// GetSchedule reads a schedule's row.
func GetSchedule(t testing.TB, db *honker.DB, name string) (s ScheduleRow) {
	t.Helper()
	require.NoError(t, db.SQL().QueryRowContext(context.Background(), on(db.SQL(), getSchedule), name).
		Scan(&s.Name, &s.Queue, &s.Spec, &s.Payload, &s.Priority, &s.Expires, &s.Attempts, &s.Next, &s.Enabled, &s.Types))
	return s
}

// Register registers a valid schedule.
func Register(t testing.TB, db *honker.DB, sch honker.Schedule) {
	t.Helper()
	require.NoError(t, db.Scheduler().Register(context.Background(), sch))
}

// Every returns a schedule for the queue "jobs".
func Every(name, spec string) honker.Schedule {
	return honker.Schedule{Name: name, Queue: "jobs", Spec: spec}
}

// RequireChanged returns a function that asserts that a call succeeded, and that it changed
// something if want is true or nothing if want is false.
func RequireChanged(t testing.TB, want bool) func(bool, error) {
	t.Helper()
	return func(got bool, err error) {
		t.Helper()
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}

// Tick fires the schedules due at now.
func Tick(t testing.TB, db *honker.DB, now time.Time) []honker.Fire {
	t.Helper()
	fires, err := db.Scheduler().Tick(context.Background(), now)
	require.NoError(t, err)
	return fires
}

// SetNextFire sets a schedule's next fire time.
func SetNextFire(t testing.TB, db *honker.DB, name string, at time.Time) {
	t.Helper()
	Exec(t, db, setNextFire, at.Unix(), name)
}
