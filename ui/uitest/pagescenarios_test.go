package uitest_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/ui"
)

// clicker clicks on a page and counts the clicks.
type clicker struct {
	*browser
	clicks int
}

// click clicks on an element and waits for a script expression.
func (o *clicker) click(selector, then string) {
	o.t.Helper()
	o.clicks++
	o.run(chromedp.Click(chromedp.CSS(selector)))
	o.wait(then)
}

// operate opens the overview of a dashboard whose data fill has written.
func operate(t *testing.T, fill func(ctx context.Context, db *honker.DB)) (*site, *clicker) {
	t.Helper()
	s := serve(t, &ui.Options{Authorize: ui.AllowAll}, 0, nil)
	fill(context.Background(), s.db)
	o := &clicker{browser: browse(t, s)}
	o.run(chromedp.EmulateViewport(1280, 900))
	o.open(s.url)
	return s, o
}

// publishLarge publishes events of ten kilobytes.
func publishLarge(ctx context.Context, t *testing.T, db *honker.DB, topic string, n int) *honker.Stream[json.RawMessage] {
	t.Helper()
	s := honker.NewStream[json.RawMessage](db, topic, nil)
	events := make([]json.RawMessage, n)
	for i := range events {
		events[i] = json.RawMessage(`"` + strings.Repeat("x", 10_000) + `"`)
	}
	_, _, err := s.PublishMany(ctx, events)
	require.NoError(t, err)
	return s
}

// A consumer that has stopped is a problem of the overview. Four clicks lead from there to the end of its topic.
func TestScenario_ConsumerBehind(t *testing.T) {
	s, o := operate(t, func(ctx context.Context, db *honker.DB) {
		orders := publishLarge(ctx, t, db, "orders", 300)
		_, err := orders.SaveOffset(ctx, "search-index", 300)
		require.NoError(t, err)
		_, err = orders.SaveOffset(ctx, "warehouse", 12)
		require.NoError(t, err)
		for _, statement := range []string{
			"UPDATE _honker_stream SET created_at = created_at - 4*3600",
			"UPDATE _honkerx_consumers SET created_ms = created_ms - 5*3600000, last_ack_ms = last_ack_ms - 3*3600000 WHERE name = 'warehouse'",
		} {
			_, err = db.SQL().Exec(statement)
			require.NoError(t, err)
		}
	})
	require.Contains(t, o.text("document.querySelector('.problems').textContent"), "warehouse")
	o.click(`.problems .act a[href="stream?topic=orders"]`, "document.querySelector('.lag p.bad')?.textContent === '288'")
	require.Equal(t, "warehouse", o.text("document.querySelector('article.lag bdi').textContent"), "the reader in trouble comes first")
	require.Equal(t, "4h", o.text("document.querySelector('article.lag [data-label=\"In time\"]').textContent"))
	require.Contains(t, o.text("document.querySelector('.below').textContent"), "warehouse has read the least: 288 events, about 2.")
	o.click("article.lag .pop summary", "document.querySelector('article.lag .pop').open")
	o.click("article.lag form[action=seek] button", "document.querySelector('main form button.primary')")
	o.click("main form button.primary", "document.querySelectorAll('article.lag .dot.good').length === 2")
	require.LessOrEqual(t, o.clicks, 4)
	c, err := honker.NewStream[json.RawMessage](s.db, "orders", nil).Offset(context.Background(), "warehouse")
	require.NoError(t, err)
	require.EqualValues(t, 300, c)
}

// The page of a large file names the topic that takes the space after a click, and the reader that keeps its events after another.
func TestScenario_LargeFile(t *testing.T) {
	_, o := operate(t, func(ctx context.Context, db *honker.DB) {
		audit := publishLarge(ctx, t, db, "audit-log", 1500)
		require.NoError(t, audit.SetRetention(ctx, honker.Retention{MaxCount: 100}))
		_, err := audit.SaveOffset(ctx, "siem", 3)
		require.NoError(t, err)
	})
	o.click(`nav a[href="file"]`, "document.querySelector('.steps')")
	require.Contains(t, o.text("document.querySelector('.steps').textContent"), "Topic “audit-log” keeps the events that its slowest reader has not read")
	require.Equal(t, "_honker_stream", o.text("document.querySelector('.space code').textContent"), "the largest table comes first")
	require.Contains(t, o.text("document.querySelectorAll('.space')[1].tBodies[0].textContent"), "audit-log events")
	o.click(".steps a", "document.querySelector('.below')")
	require.Regexp(t, `siem has read the least: 1,497 events, about 1\d\.\d MiB, are kept for it even beyond the retention`, o.text("document.querySelector('.below').textContent"))
	require.LessOrEqual(t, o.clicks, 4)
}

// One click shows which schedule did not fire last night, although a scheduler has gone on, and another fires it.
func TestScenario_ScheduleDidNotFire(t *testing.T) {
	s, o := operate(t, func(ctx context.Context, db *honker.DB) {
		for _, name := range []string{"hourly", "nightly-backup", "weekly"} {
			require.NoError(t, db.Scheduler().Register(ctx, honker.Schedule{Name: name, Queue: "ops", Spec: "30 2 * * *", Missed: honker.Skip}))
		}
		_, err := db.SQL().Exec(`INSERT INTO _honkerx_schedules (name, missed, last_fire_ms, last_job, last_skip_ms, skipped)
			VALUES ('nightly-backup', 2, unixepoch() * 1000 - 86400000, 1, unixepoch() * 1000 - 30000000, 1)
			ON CONFLICT DO UPDATE SET last_fire_ms = excluded.last_fire_ms, last_job = 1, last_skip_ms = excluded.last_skip_ms, skipped = 1`)
		require.NoError(t, err)
	})
	o.click(`nav a[href="schedules"]`, "document.querySelector('.schedules')")
	require.Equal(t, "1 schedule did not fire last time: nightly-backup.", o.text("document.querySelector('.lead').textContent"))
	require.Equal(t, "nightly-backup", o.text("document.querySelector('.schedules tbody bdi').textContent"), "the schedule in trouble comes first")
	require.Equal(t, "1", o.text("document.querySelectorAll('.calendar .skip').length"))
	o.click(".schedules form[action=trigger] button", "document.querySelector('.flash')")
	require.Equal(t, "0", o.text("document.querySelectorAll('.lead').length"), "it has fired")
	require.LessOrEqual(t, o.clicks, 4)
	stats, err := s.queue("ops").Stats(context.Background())
	require.NoError(t, err)
	require.EqualValues(t, 1, stats.Ready.N)
}

// 47 schedules fit 4,000 pixels, and the pages fit windows of 1280 and 390.
func TestPages_ManySchedules(t *testing.T) {
	s, o := operate(t, func(ctx context.Context, db *honker.DB) {
		for i := range 47 {
			require.NoError(t, db.Scheduler().Register(ctx, honker.Schedule{Name: strings.Repeat("nightly-report-", 1+i%5), Queue: "reports", Spec: "30 2 * * *"}))
			require.NoError(t, db.Scheduler().Register(ctx, honker.Schedule{Name: strings.Repeat("s", 1+i), Queue: "reports", Spec: "*/5 * * * *"}))
		}
	})
	for _, width := range []int64{1280, 390} {
		o.run(chromedp.EmulateViewport(width, 900))
		o.open(s.url + "schedules")
		require.Equal(t, "true", o.text("document.documentElement.scrollWidth <= innerWidth"), "%d", width)
		require.Equal(t, "52", o.text("document.querySelectorAll('.schedules tbody tr').length"))
		if width == 1280 {
			require.Equal(t, "true", o.text("document.documentElement.scrollHeight < 4000"), o.text("document.documentElement.scrollHeight"))
		}
	}
}
