package uitest_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/ui"
)

// operator uses a page as an operator does, and counts the clicks and the filled-in fields.
type operator struct {
	*browser
	clicks, fields int
}

// click clicks the first element that a selector finds and whose text contains a text.
func (o *operator) click(selector, text string) {
	o.t.Helper()
	o.clicks++
	o.wait(fmt.Sprintf(`(() => { const e = [...document.querySelectorAll(%q)].find((e) => e.textContent.includes(%q)); e?.click(); return e })()`, selector, text))
}

// search fills in the search field of the page and sends it.
func (o *operator) search(text string) {
	o.t.Helper()
	o.fields++
	o.run(chromedp.SendKeys(chromedp.CSS("#find"), text+"\r"))
}

// pages saves pictures of a page in both widths and color schemes, and checks that it fits and is accessible.
func (b *browser) pages(name, url string) {
	b.t.Helper()
	for _, dark := range []string{"light", "dark"} {
		for _, width := range []int64{1280, 390} {
			b.run(chromedp.EmulateViewport(width, 900))
			_, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
				Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: dark}}})
			require.NoError(b.t, err)
			b.open(url)
			b.live()
			b.whole(fmt.Sprintf("%s-%d-%s", name, width, dark), width)
			require.Equal(b.t, "true", b.text("document.documentElement.scrollWidth <= innerWidth"), "%s is wider than %d", name, width)
			require.Empty(b.t, b.violations(), "%s, %d wide, %s", name, width, dark)
		}
	}
	b.run(chromedp.EmulateViewport(1280, 900))
}

// Scenario B: a job has never run, because a job that it waits for is dead. From the words of the customer, a search and
// two clicks requeue that job, and all others go on.
func TestScenario_NeverRan(t *testing.T) {
	ctx := context.Background()
	s := serve(t, &ui.Options{Authorize: ui.AllowAll}, 0, nil)
	add := func(queue, args string, opts ...honker.EnqueueOption) int64 {
		id, err := s.queue(queue).Enqueue(ctx, json.RawMessage(args), opts...)
		require.NoError(t, err)
		return id
	}
	claim := func(queue string) *honker.Job[json.RawMessage] {
		jobs, err := s.queue(queue).Claim(ctx, "worker-1", 1)
		require.NoError(t, err)
		require.Len(t, jobs, 1)
		return jobs[0]
	}
	extract := add("etl.extract", `{"day":"2026-11-27"}`)
	clean, join := add("etl.clean", `{"day":"2026-11-27"}`, honker.After(extract)), add("etl.join", `{"day":"2026-11-27"}`, honker.After(extract))
	batch, err := s.db.NewBatch(ctx, &honker.BatchOptions{Name: "warehouse"})
	require.NoError(t, err)
	load := add("etl.load", `{"export":{"invoice":"2026-11-0042","customer":"cus_8812"},"lines":[1,2]}`, honker.After(clean, join), honker.InBatch(batch.ID))
	last := add("notify", `{"to":"anna"}`, honker.AfterBatch(batch.ID))
	require.NoError(t, batch.Seal(ctx))
	require.NoError(t, claim("etl.extract").Ack(ctx))
	require.NoError(t, claim("etl.clean").Ack(ctx))
	require.NoError(t, claim("etl.join").Reject(ctx, errors.New("join: the supplier's file lacks the column vat_id: "+strings.Repeat("unbreakable", 60))))

	b := browse(t, s)
	b.pages("never-ran", fmt.Sprintf("%sjob?id=%d", s.url, load))
	b.open(s.url)
	o := &operator{browser: b}
	o.search("2026-11-0042")
	o.click("table a", fmt.Sprint(load))
	b.wait(fmt.Sprintf("document.querySelector('.answer')?.textContent.includes('It waits for job %d, which is dead')", join))
	require.Equal(t, "6", b.text("document.querySelectorAll('.workflow .node').length"))
	require.Equal(t, "1", b.text("document.querySelectorAll('.workflow .edge.dead').length"))
	o.click(".answer button", "and all go on")
	b.wait("document.getElementById('flash')?.textContent.includes('1 job requeued')")
	require.LessOrEqual(t, o.clicks+o.fields, 4)
	t.Logf("%d clicks and %d field", o.clicks, o.fields)
	require.NoError(t, claim("etl.join").Ack(ctx))
	require.NoError(t, claim("etl.load").Ack(ctx))
	require.Equal(t, last, claim("notify").ID)
}

// Scenario C: a job runs for three hours, although others of its queue take a second. From the overview, two clicks
// cancel it.
func TestScenario_RunsForHours(t *testing.T) {
	ctx := context.Background()
	s := serve(t, &ui.Options{Authorize: ui.AllowAll}, 0, nil)
	q := s.queue("invoices")
	id, err := q.Enqueue(ctx, json.RawMessage(`{"invoice":"2026-11-0042","customer":"cus_8812","total":1299.5}`), honker.Key("cus_8812"), honker.Headers(map[string]string{"request-id": "req_9f1"}))
	require.NoError(t, err)
	for i := range 40 {
		_, err := q.Enqueue(ctx, json.RawMessage(fmt.Sprintf(`{"invoice":"2026-11-%04d","customer":"cus_%d"}`, 100+i, i)))
		require.NoError(t, err)
	}
	jobs, err := q.Claim(ctx, "web-1-812-invoices", 1)
	require.NoError(t, err)
	require.NoError(t, jobs[0].Retry(ctx, 0, errors.New("POST https://supplier.example.com/invoices: 503 Service Unavailable")))
	jobs, err = q.Claim(ctx, "web-1-812-invoices", 1)
	require.NoError(t, err)
	jobs[0].SetProgress(41, 100, "page 41")
	require.NoError(t, jobs[0].Extend(ctx, time.Hour))
	require.NoError(t, s.db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error { return ageJob(ctx, tx, id) }))

	b := browse(t, s)
	b.pages("runs-job", fmt.Sprintf("%sjob?id=%d", s.url, id))
	b.pages("runs-queue", s.url+"queue?name=invoices")
	b.open(s.url)
	o := &operator{browser: b}
	o.click(".problems .act a", "Open")
	b.wait("document.querySelector('.answer')?.textContent.includes('times as long as others')")
	o.click(".pagehead button", "Cancel")
	b.wait("document.getElementById('flash')?.textContent.includes('1 job cancelled')")
	t.Logf("%d clicks", o.clicks)
	require.LessOrEqual(t, o.clicks, 4)
	_, err = s.db.Job(ctx, id)
	require.ErrorIs(t, err, honker.ErrNotFound)
}

// ageJob moves a job's past three hours back, and adds the traffic of a queue whose handlers take a second.
func ageJob(ctx context.Context, tx *sql.Tx, id int64) error {
	now := time.Now()
	ms := func(ago time.Duration) int64 { return now.Add(-ago).UnixMilli() }
	for _, s := range []struct {
		query string
		args  []any
	}{
		{"UPDATE _honker_live SET created_at = ?, run_at = ? WHERE id = ?", []any{ms(194*time.Minute) / 1000, ms(193*time.Minute) / 1000, id}},
		{"UPDATE _honkerx_attempts SET start_ms = ?, ran_ms = 111900 WHERE job_id = ?", []any{ms(193*time.Minute + 50*time.Second), id}},
		{"INSERT OR REPLACE INTO _honkerx_starts (job_id, worker, attempt, start_ms) VALUES (?, 'web-1-812-invoices', 2, ?)", []any{id, ms(171 * time.Minute)}},
	} {
		if _, err := tx.ExecContext(ctx, s.query, s.args...); err != nil {
			return err
		}
	}
	for back := range int64(60) {
		done := 20 + back*7%13
		if _, err := tx.ExecContext(ctx, sqlMinute, now.Unix()/60-back, "invoices", done+2, done+1, done, 1, 0, done*900, done*1200, 1500+back%7*300); err != nil {
			return err
		}
	}
	return nil
}

// A search goes on by itself until it has looked at all jobs, and finds an old job without a click. It can be stopped and
// continued. Without scripts, links do the same.
func TestJobs_SearchByItself(t *testing.T) {
	s := serve(t, nil, 0, nil)
	seedHay(t, s, 120_000)
	b := browse(t, s)
	b.open(s.url + "jobs?contains=needle")
	b.wait("document.querySelectorAll('#selection tbody tr').length === 2 && !document.querySelector('[data-search]')")
	require.Contains(t, b.text("location.search"), "on=", "a reload shows the same")
	b.open(s.url + "jobs?contains=nothing-of-that")
	b.wait("document.querySelector('.empty')?.textContent === 'No job matches.'")

	b.run(chromedp.Evaluate[chromedp.Void](fmt.Sprintf("location = %q", s.url+"jobs?contains=hay-and-more")))
	b.wait("location.search.includes('hay-and-more') && document.documentElement.classList.contains('searching') && document.querySelector('.empty').textContent === 'None found yet.'")
	b.run(chromedp.Evaluate[chromedp.Void]("document.querySelector('[data-stop]').click()"))
	b.wait("!document.documentElement.classList.contains('searching')")
	searched := b.text("document.getElementById('search').textContent")
	require.Contains(t, searched, " of 100,000+ jobs", "counts are lower bounds from there")
	b.run(chromedp.Sleep(500*time.Millisecond), chromedp.Click(chromedp.CSS("[data-on]")))
	b.wait("document.querySelector('.empty')?.textContent === 'No job matches.'")
}

// Without scripts, each click on the link searches for two seconds.
func TestJobs_SearchWithoutScripts(t *testing.T) {
	s := serve(t, nil, 0, nil)
	seedHay(t, s, 120_000)
	b := browse(t, s, chromedp.Flag("blink-settings", "scriptEnabled=false"))
	b.open(s.url + "jobs?contains=needle")
	b.run(chromedp.Click(chromedp.CSS("[data-on]")), chromedp.WaitVisible(chromedp.CSS("#j1")))
}

// seedHay adds n jobs that do not contain the word needle between two that do.
func seedHay(t *testing.T, s *site, n int) {
	t.Helper()
	ctx := context.Background()
	add := func(args ...json.RawMessage) {
		_, err := s.queue("mails").EnqueueMany(ctx, args)
		require.NoError(t, err)
	}
	add(json.RawMessage(`"needle"`))
	many := make([]json.RawMessage, n)
	for i := range many {
		many[i] = json.RawMessage(fmt.Sprintf(`{"to":"customer-%d@example.com","text":"hay"}`, i))
	}
	add(many...)
	add(json.RawMessage(`"needle"`))
}

// Scenario A: the mail server is down. The first row of the overview names the queue, one click pauses it, and three more
// let it run again and spread its dead jobs over ten minutes. Another click would undo that.
func TestScenario_MailServerDown(t *testing.T) {
	s := serve(t, &ui.Options{Authorize: ui.AllowAll}, 0, nil)
	seedOutage(t, s.db)
	o := &operator{browser: browse(t, s)}
	o.open(s.url)
	require.Contains(t, o.text("document.querySelector('.problems > li').textContent"), "emails: 96 % of")
	o.click(".problems > li button", "Pause for 30m")
	o.wait("document.querySelector('#flash')?.textContent.includes('Paused')")
	o.click("button", "Undo: resume") // the mail server is up again
	o.wait("document.querySelector('#flash')?.textContent.includes('Resumed')")
	o.click("button", "Requeue its dead jobs of the last day")
	o.wait("document.querySelector('input[name=spread]')?.value === '10m'")
	o.click("button.primary", "Requeue 300 jobs")
	o.wait("document.querySelector('#flash')?.textContent.includes('300 jobs requeued, spread over 10m')")
	require.Equal(t, 4, o.clicks)
	require.Zero(t, o.fields)
	stats, err := s.queue("emails").Stats(t.Context())
	require.NoError(t, err)
	require.Zero(t, stats.Dead.N)
	require.Equal(t, "true", o.text("[...document.querySelectorAll('button')].some((b) => b.textContent.startsWith('Undo'))"))
}
