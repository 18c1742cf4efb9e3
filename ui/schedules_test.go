package ui_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
)

// The page tells which schedules did not fire last night, also after a scheduler has gone on.
func TestSchedules_LastNight(t *testing.T) {
	honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
		ctx := t.Context()
		h := dashboard(t, db, nil)
		s := db.Scheduler()
		for name, missed := range map[string]honker.Missed{"backup": honker.Skip, "report": honker.FireLast} {
			require.NoError(t, s.Register(ctx, honker.Schedule{Name: name, Queue: "night", Spec: "30 2 * * *", Missed: missed}))
		}
		require.NoError(t, s.Register(ctx, honker.Schedule{Name: "minute", Queue: "night", Spec: "* * * * *", Missed: honker.FireLast}))
		time.Sleep(10 * time.Hour)
		page := get(h, "/schedules").Body.String()
		require.Contains(t, page, "3 schedules did not fire last time:")
		require.Contains(t, page, "overdue")

		_, err := s.Tick(ctx, time.Now())
		require.NoError(t, err)
		_, err = queue(db, "night").WorkDue(ctx, accept, nil)
		require.NoError(t, err)
		page = get(h, "/schedules").Body.String()
		require.Contains(t, page, "1 schedule did not fire last time:</b> <bdi>backup</bdi>.")
		row := func(name string) string { return between(t, page, "</i><bdi>"+name+"</bdi>", "</tr>") }
		// Half past two is 7.5 hours, or 90 units of five minutes, before now.
		require.Contains(t, row("backup"), `<path class="fire skip" d="M198 3v16"/>`)
		require.Contains(t, row("backup"), "1 skipped")
		require.Contains(t, row("report"), `<path class="fire good" d="M198 3v16"/>`)
		require.Contains(t, row("report"), `<path class="fire next" d="M486 3v16"/>`)
		require.Contains(t, row("minute"), "more than")
		require.Less(t, strings.Index(page, "</i><bdi>backup"), strings.Index(page, "</i><bdi>minute"))
	})
}

func accept(context.Context, *honker.Job[json.RawMessage]) error { return nil }

// A page of many schedules shows the first 200, and names the zone of their specs.
func TestSchedules_Many(t *testing.T) {
	db, h := open(t, nil)
	require.Contains(t, get(h, "/schedules").Body.String(), "honker schedule add")
	for i := range 201 {
		require.NoError(t, db.Scheduler().Register(t.Context(), honker.Schedule{Name: fmt.Sprintf("s%03d", i), Queue: "q", Spec: "@daily"}))
	}
	page := get(h, "/schedules").Body.String()
	require.Contains(t, page, "<p class=\"quiet\">200. Specs")
	require.Contains(t, page, "1 more.")
	require.Contains(t, page, "here it is UTC, UTC&#43;00:00")
}
