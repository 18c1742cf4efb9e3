//go:build unix

package honker_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // wherever the tests run

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/faultvfs"
	"github.com/honker-go/honker/internal/proc"
)

func init() { children["berlin"] = berlin }

// berlin is a child whose clock is set about days on which the zone's are changed. It says
// how many times each tick has fired, and the last of them.
func berlin() {
	var err error
	time.Local, err = time.LoadLocation("Europe/Berlin") // before anybody has looked
	proc.Must(err)
	_, db := openChild(nil)
	ctx := context.Background()
	proc.Must(db.Scheduler().Register(ctx, honker.Schedule{Name: "s", Queue: "q", Spec: "30 2 * * *"}))
	for next, ticks := range berlinTicks {
		_, err := db.SQL().ExecContext(ctx, `UPDATE _honker_scheduler_tasks SET next_fire_at = ?`, moment(next).Unix())
		proc.Must(err)
		for _, tick := range ticks {
			fires, err := db.Scheduler().Tick(ctx, moment(tick.at))
			proc.Must(err)
			last := ""
			if n := len(fires); n > 0 {
				last = fires[n-1].FireAt.UTC().Format(time.RFC3339)
			}
			if said, want := fmt.Sprint(len(fires), last), fmt.Sprint(tick.fires, tick.last); said != want {
				proc.Must(fmt.Errorf("the tick at %s fired %s and not %s", tick.at, said, want))
			}
		}
	}
	proc.Must(db.Close())
	proc.Say("good")
}

func moment(text string) time.Time {
	at, err := time.Parse(time.RFC3339, text)
	proc.Must(err)
	return at
}

// berlinTicks are, by when the schedule is due first, clocks that jump over a change of
// daylight saving time, forward and back.
var berlinTicks = map[string][]struct {
	at    string
	fires int
	last  string
}{
	"2026-03-28T01:30:00Z": { // 2:30 on the 29th does not exist, and is 3:00
		{"2026-03-28T12:00:00Z", 1, "2026-03-28T01:30:00Z"},
		{"2026-03-29T00:59:59Z", 0, ""},
		{"2026-03-30T12:00:00Z", 2, "2026-03-30T00:30:00Z"},
		{"2026-03-29T01:30:00Z", 0, ""},
		{"2026-03-31T00:30:00Z", 1, "2026-03-31T00:30:00Z"},
	},
	"2026-10-24T00:30:00Z": { // there are two 2:30 on the 25th, and it is the second
		{"2026-10-24T12:00:00Z", 1, "2026-10-24T00:30:00Z"},
		{"2026-10-25T00:45:00Z", 0, ""},
		{"2026-10-25T01:30:00Z", 1, "2026-10-25T01:30:00Z"},
		{"2026-10-25T00:30:00Z", 0, ""},
		{"2026-10-25T01:45:00Z", 0, ""},
		{"2026-10-27T12:00:00Z", 2, "2026-10-27T01:30:00Z"},
	},
}

func TestScheduleFiresEachDayOnceWhenTheClockJumpsOverDaylightSaving(t *testing.T) {
	path, _ := shared(t)
	require.Equal(t, []string{"good"}, proc.Start(t, "berlin", task{Path: path}).End())
}

// SQLite has a clock of its own, which other programs may ask. This library does not.
func TestTimesAreGosWhateverSQLitesClockSays(t *testing.T) {
	for _, wrong := range []time.Duration{time.Hour, -time.Hour} {
		_, db := onFaultyDisk(t)
		ctx := context.Background()
		faultvfs.Clock(wrong)
		t.Cleanup(func() { faultvfs.Clock(0) })
		require.EqualValues(t, wrong.Hours(), number(t, db.SQL(), `SELECT round((unixepoch() - ?) / 3600.0)`, time.Now().Unix()))
		q := honker.NewQueue[int](db, "jobs", &honker.QueueOptions{Visibility: time.Minute})
		died := add(t, q, 1)
		require.NoError(t, holdOne(t, q).Fail(ctx, nil))
		held := add(t, q, 2)
		job := holdOne(t, q)
		require.Equal(t, held, job.ID)
		add(t, q, 3, honker.Delay(time.Minute))
		require.Empty(t, hold(t, q, 1))
		require.NoError(t, q.SaveResult(ctx, died, 1, time.Minute))
		e, err := honker.NewStream[int](db, "s", nil).Publish(ctx, 1)
		require.NoError(t, err)
		_, err = db.Notify(ctx, "news", e)
		require.NoError(t, err)
		l, err := db.TryLock(ctx, "l", nil)
		require.NoError(t, err)
		_, err = db.TryLock(ctx, "l", nil)
		require.ErrorIs(t, err, honker.ErrLockHeld)
		for _, column := range []string{"_honker_live.created_at", "_honker_dead.created_at", "_honker_dead.died_at", "_honker_results.created_at",
			"_honker_results.expires_at", "_honker_stream.created_at", "_honker_notifications.created_at", "_honker_live.claim_expires_at",
			"_honker_live.run_at", "_honker_locks.expires_at"} {
			requireAboutNow(t, db, column)
		}
		require.NoError(t, job.Ack(ctx))
		require.NoError(t, l.Unlock(ctx))
	}
}

// requireAboutNow fails for times that are not of these minutes.
func requireAboutNow(t *testing.T, db *honker.DB, column string) {
	t.Helper()
	table, name, _ := strings.Cut(column, ".")
	query := "SELECT count(*), count(*) FILTER (WHERE abs(" + name + " - ?) > 300) FROM " + table + " WHERE " + name + " IS NOT NULL"
	var all, wrong int
	require.NoError(t, db.SQL().QueryRow(query, time.Now().Unix()).Scan(&all, &wrong))
	require.Positive(t, all, column)
	require.Zero(t, wrong, column)
}
