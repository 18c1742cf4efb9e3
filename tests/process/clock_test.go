//go:build unix

package process_test

import (
	"context"
	"fmt"
	"testing"
	"time"
	_ "time/tzdata" // for systems without a time zone database

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/testkit"
)

func init() { children["berlin"] = berlin }

// berlin is a child process in the time zone of Berlin. It moves its clock across changes of
// daylight saving time and compares the fires of each tick with berlinTicks.
func berlin() {
	var err error
	time.Local, err = time.LoadLocation("Europe/Berlin") // before the time zone is used
	testkit.Must(err)
	_, db := testkit.OpenChild(nil)
	ctx := context.Background()
	testkit.Must(db.Scheduler().Register(ctx, honker.Schedule{Name: "s", Queue: "q", Spec: "30 2 * * *"}))
	for next, ticks := range berlinTicks {
		_, err := db.SQL().ExecContext(ctx, testkit.Either(`UPDATE _honker_scheduler_tasks SET next_fire_at = $1`,
			`UPDATE schedule SET next_at = to_timestamp(CAST($1 AS BIGINT))`), moment(next).Unix())
		testkit.Must(err)
		for _, tick := range ticks {
			fires, err := db.Scheduler().Tick(ctx, moment(tick.at))
			testkit.Must(err)
			last := ""
			if n := len(fires); n > 0 {
				last = fires[n-1].FireAt.UTC().Format(time.RFC3339)
			}
			if said, want := fmt.Sprint(len(fires), last), fmt.Sprint(tick.fires, tick.last); said != want {
				testkit.Must(fmt.Errorf("the tick at %s fired %s and not %s", tick.at, said, want))
			}
		}
	}
	testkit.Must(db.Close())
	testkit.Say("good")
}

func moment(text string) time.Time {
	at, err := time.Parse(time.RFC3339, text)
	testkit.Must(err)
	return at
}

// berlinTicks lists clock times around a change of daylight saving time, by the time at which the
// schedule is due first. The times jump forward and back.
var berlinTicks = map[string][]struct {
	at    string
	fires int
	last  string
}{
	"2026-03-28T01:30:00Z": { // 2:30 does not exist on the 29th, so the schedule fires at 3:00
		{"2026-03-28T12:00:00Z", 1, "2026-03-28T01:30:00Z"},
		{"2026-03-29T00:59:59Z", 0, ""},
		{"2026-03-30T12:00:00Z", 2, "2026-03-30T00:30:00Z"},
		{"2026-03-29T01:30:00Z", 0, ""},
		{"2026-03-31T00:30:00Z", 1, "2026-03-31T00:30:00Z"},
	},
	"2026-10-24T00:30:00Z": { // 2:30 exists twice on the 25th, and the schedule fires at the second
		{"2026-10-24T12:00:00Z", 1, "2026-10-24T00:30:00Z"},
		{"2026-10-25T00:45:00Z", 0, ""},
		{"2026-10-25T01:30:00Z", 1, "2026-10-25T01:30:00Z"},
		{"2026-10-25T00:30:00Z", 0, ""},
		{"2026-10-25T01:45:00Z", 0, ""},
		{"2026-10-27T12:00:00Z", 2, "2026-10-27T01:30:00Z"},
	},
}

// A daily schedule fires once per day when the clock jumps across a change of daylight saving time.
func TestScheduler_DaylightSaving(t *testing.T) {
	path, _ := openShared(t)
	require.Equal(t, []string{"good"}, testkit.StartChild(t, "berlin", testkit.Task{Path: path}).End())
}
