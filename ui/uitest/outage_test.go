package uitest_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/ui"
)

// hostileNames are names of queues that break pages which do not escape or cut them.
var hostileNames = []string{
	`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, "a b\tc\nnew line", "../../etc/passwd", "очередь/писем", "Ünïcödé 日本語キュー",
	"\u202egnirts lortnoc", strings.Repeat("very-long-queue-name-", 12), strings.Repeat("x", 240), "%2e%2e?x=1&y=2#frag", "' OR 1=1 --", "🔥🔥🔥", "\x1b[31mred\x1b[0m", "{{.}}", "تقارير",
}

// seedOutage fills a file with about 500 queues, in which the mail server is down: nearly all attempts of the
// queue emails have failed for 22 minutes. Most other queues have ready jobs and no worker.
func seedOutage(t *testing.T, db *honker.DB) {
	t.Helper()
	ctx := context.Background()
	queue := func(name string) *honker.Queue[json.RawMessage] {
		return honker.NewQueue[json.RawMessage](db, name, nil)
	}
	add := func(name string, n int, opts ...honker.EnqueueOption) {
		args := make([]json.RawMessage, n)
		for i := range args {
			args[i] = json.RawMessage(fmt.Sprintf(`{"order":%d,"to":"customer-%d@example.com"}`, i, i))
		}
		_, err := queue(name).EnqueueMany(ctx, args, opts...)
		require.NoError(t, err)
	}
	require.NoError(t, db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error { return addQueues(ctx, db, tx) }))
	die := func(name string, n int, cause func(i int) string) {
		add(name, n, honker.Priority(9))
		jobs, err := queue(name).Claim(ctx, "web-1-812-77ab", n)
		require.NoError(t, err)
		require.NoError(t, db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			for i, job := range jobs {
				if err := job.RejectTx(ctx, tx, errors.New(cause(i))); err != nil {
					return err
				}
			}
			return nil
		}))
	}
	die("emails", 300, func(int) string { return "smtp: dial tcp 10.0.3.11:587: connect: connection refused" })
	die("webhooks", 60, func(i int) string {
		return fmt.Sprintf("POST https://hooks.example.com/%d: 503 Service Unavailable after %d ms", i, 900+i)
	})
	die("invoices", 20, func(int) string { return strings.Repeat("unbreakable", 60) })
	add("emails", 400)
	add("emails", 1500, honker.Delay(20*time.Minute))
	_, err := db.SQL().Exec(`UPDATE _honker_live SET attempts = 1 + id % 7 % 5 WHERE queue = 'emails' AND run_at > unixepoch()`)
	require.NoError(t, err)
	_, err = db.SQL().Exec(`INSERT INTO _honkerx_job (job_id, last_error) SELECT id, CASE WHEN id % 30 THEN 'smtp: dial tcp 10.0.3.11:587: connect: connection refused'
		ELSE '550 5.1.1 mailbox "customer-' || id || '" unavailable' END FROM _honker_live WHERE queue = 'emails' AND attempts > 0`)
	require.NoError(t, err)
	add("thumbnails", 5600)
	add("reports", 2140)
	add("imports", 310)
	add("webhooks", 34)
	add("exports", 40)
	add("invoices", 225)
	_, err = queue("imports").Pause(ctx, &honker.PauseOptions{Reason: "the supplier migrates until noon, " + strings.Repeat("wait ", 30), By: "anna", Until: time.Now().Add(2 * time.Hour)})
	require.NoError(t, err)
	require.NoError(t, queue("webhooks").SetLimits(ctx, honker.Limits{Running: 20, PerKey: 2, Rate: honker.Rate{N: 50, Per: time.Second, Burst: 10}}))
	for age, names := range map[int]string{1740: "queue NOT IN ('emails', 'thumbnails', 'webhooks', 'exports', 'reports')", 1800: "queue = 'reports'", 66: "queue = 'emails'", 588: "queue = 'thumbnails'"} {
		_, err := db.SQL().Exec(fmt.Sprintf("UPDATE _honker_live SET created_at = created_at - %d, run_at = run_at - %d WHERE run_at <= unixepoch() AND %s", age, age, names))
		require.NoError(t, err)
	}
	seedWorkers(t, db)
	outageTraffic(t, db)
	seedStreams(t, db)
	seedSchedules(t, db)
}

// addQueues adds the queues that only make up the number.
func addQueues(ctx context.Context, db *honker.DB, tx *sql.Tx) error {
	add := func(name string, n int, opts ...honker.EnqueueOption) error {
		_, err := honker.NewQueue[int](db, name, nil).EnqueueManyTx(ctx, tx, make([]int, n), opts...)
		return err
	}
	areas := []string{"billing", "catalog", "crm", "search", "media", "ops", "mail", "sync", "ml", "iot"}
	kinds := []string{"import", "export", "index", "notify", "render", "cleanup", "reconcile", "audit", "webhook", "score"}
	for i := range 440 {
		opts := []honker.EnqueueOption{}
		if i%3 == 0 {
			opts = append(opts, honker.Delay(time.Hour))
		}
		if err := add(fmt.Sprintf("%s.%s.%d", areas[i%10], kinds[i/10%10], i/100+1), 1+i*7%23, opts...); err != nil {
			return err
		}
	}
	for i := range 40 {
		if err := add(fmt.Sprintf("tenant-%03d", i), 5+i, honker.Delay(time.Hour)); err != nil {
			return err
		}
	}
	for _, name := range hostileNames {
		if err := add(name, 1); err != nil {
			return err
		}
	}
	return nil
}

// outageTraffic writes the traffic of the last hours.
func outageTraffic(t *testing.T, db *honker.DB) {
	t.Helper()
	tx, err := db.SQL().Begin()
	require.NoError(t, err)
	defer func() { _ = tx.Rollback() }()
	now := time.Now().Unix() / 60
	for back := range int64(180) {
		var total [7]int64
		for q, name := range []string{"emails", "thumbnails", "webhooks", "exports", "catalog.import.1", "search.index.2", "billing.webhook.1"} {
			done := []int64{1800, 1150, 840, 300, 90, 60, 30}[q] + (back*37+int64(q)*11)%29
			enqueued, retried, died, wait := done+3, done/60, int64(0), int64(300*(q+1))+back%7*90
			switch {
			case name == "emails" && back < 22:
				retried, died, done, wait = done, 33, done/30, 66_000-back*2_500
			case name == "thumbnails":
				enqueued, retried, wait = done-950, 0, 588_000-back*9_000
			}
			counts := [7]int64{enqueued, done + retried + died, done, retried, died, max(0, wait/2*done), done * 90}
			for i := range counts {
				total[i] += counts[i]
			}
			_, err = tx.Exec(sqlMinute, now-back, name, counts[0], counts[1], counts[2], counts[3], counts[4], counts[5], counts[6], max(100, wait))
			require.NoError(t, err)
		}
		_, err = tx.Exec(sqlMinute, now-back, "", total[0], total[1], total[2], total[3], total[4], total[5], total[6], 0)
		require.NoError(t, err)
	}
	require.NoError(t, tx.Commit())
}

const sqlMinute = `INSERT OR REPLACE INTO _honkerx_minutes (minute, queue, enqueued, claimed, acked, retried, died, wait_ms, ran_ms, max_wait_ms) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`

// In a file of 500 queues with hostile names, no page is wider than its window or longer than a few screens, and the
// failing queue is in the first row of the table.
func TestPages_Outage(t *testing.T) {
	s := serve(t, &ui.Options{Authorize: ui.AllowAll, Title: "production"}, 0, nil)
	seedOutage(t, s.db)
	b := browse(t, s)
	slow := fmt.Sprintf("job?id=%d", seedPipeline(t, s.db))
	pictures := map[string]string{"": "overview", "queue?name=emails": "queue", slow: "job"}
	pages := []string{"", "queues", "queues?tab=all&fold=1", "queues?problem=no_worker", "queue?name=emails", "jobs?queue=emails", "dead", "job?id=1", slow, "streams", "schedules", "workers", "locks", "file"}
	for _, name := range hostileNames[6:9] {
		pages = append(pages, "queue?name="+escape(name))
	}
	for _, dark := range []string{"light", "dark"} {
		for _, width := range []int64{1280, 390} {
			b.run(chromedp.EmulateViewport(width, 900))
			_, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
				Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: dark}}})
			require.NoError(t, err)
			for i, page := range pages {
				b.open(s.url + page)
				b.picture(pictures[page], width, dark)
				b.whole(fmt.Sprintf("outage-%02d-%d-%s", i, width, dark), width)
				require.Equal(t, "true", b.text("document.documentElement.scrollWidth <= innerWidth"), "%s is wider than %d", page, width)
				if !strings.HasPrefix(page, "jobs") {
					require.Equal(t, "true", b.text("document.documentElement.scrollHeight <= 4000"), "%s is %s high, %d wide", page, b.text("document.documentElement.scrollHeight"), width)
				}
			}
		}
	}
	b.run(chromedp.EmulateViewport(1280, 900))
	b.open(s.url)
	require.Equal(t, "emails", b.text("document.querySelector('.queues tbody th a').textContent"))
	require.Equal(t, "failing", b.text("document.querySelector('.queues tbody th .tag').textContent"))
	require.Equal(t, "true", b.text("document.querySelectorAll('.problems > li').length <= 9"))
	require.Empty(t, b.violations())
}

func escape(name string) string {
	return strings.NewReplacer("%", "%25", " ", "%20", "&", "%26", "#", "%23", "+", "%2B", "\x1b", "%1B").Replace(name)
}

// whole saves a screenshot of a page at its full height in the directory named by HONKER_WHOLE.
func (b *browser) whole(name string, width int64) {
	dir := os.Getenv("HONKER_WHOLE")
	if dir == "" {
		return
	}
	var height int64
	_, err := fmt.Sscan(b.text("document.documentElement.scrollHeight"), &height)
	require.NoError(b.t, err)
	b.run(chromedp.EmulateViewport(width, max(900, height)), chromedp.Sleep(100*time.Millisecond))
	png, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	require.NoError(b.t, err)
	require.NoError(b.t, os.WriteFile(filepath.Join(dir, name+".png"), png, 0o600))
	b.run(chromedp.EmulateViewport(width, 900))
}

// The search field opens a job by its ID and a queue by its name. Other text is searched for.
func TestFind_Field(t *testing.T) {
	s := serve(t, nil, 0, nil)
	s.enqueue(t, "mails")
	b := browse(t, s)
	for text, want := range map[string]string{"1": "Job 1", "#1": "Job 1", "mails": "mails", "nothing of that": "Jobs"} {
		b.open(s.url)
		b.run(chromedp.KeyEvent("/"))
		require.Equal(t, "find", b.text("document.activeElement.id"))
		b.run(chromedp.Evaluate[chromedp.Void](fmt.Sprintf("{ const f = document.getElementById('find'); f.value = %q; f.form.requestSubmit() }", text)))
		b.wait(fmt.Sprintf("document.querySelector('h1')?.textContent.includes(%q)", want))
	}
}

// The switch shows times in UTC or in the browser's zone, and pages remember the choice.
func TestZones_Switch(t *testing.T) {
	s := serve(t, nil, 0, nil)
	s.enqueue(t, "mails")
	b := browse(t, s)
	_, err := chromedp.Call(b.ctx, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "Asia/Kathmandu"})
	require.NoError(t, err)
	b.open(s.url + "job?id=1")
	const shown = "document.querySelector('time[data-as=at]').textContent"
	local := b.text(shown)
	require.Contains(t, b.text("document.getElementById('zone').textContent"), "mandu")
	b.run(chromedp.Click(chromedp.CSS("[data-zone=utc]")))
	utc := b.text(shown)
	east, err := time.Parse(time.DateTime, local)
	require.NoError(t, err)
	west, err := time.Parse(time.DateTime, utc)
	require.NoError(t, err)
	require.Equal(t, 5*time.Hour+45*time.Minute, east.Sub(west))
	b.open(s.url + "job?id=1")
	require.Equal(t, utc, b.text(shown))
}
