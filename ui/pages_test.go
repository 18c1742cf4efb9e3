package ui_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
	"github.com/honker-go/honker/seal"
	"github.com/honker-go/honker/ui"
)

var update = flag.Bool("update", false, "write the golden pages")

// golden compares the content of the main element with a file in testdata.
func golden(t *testing.T, h http.Handler, name, target string) {
	t.Helper()
	w := get(h, "/"+target, "Honker-Fragment", "1")
	require.Equal(t, http.StatusOK, w.Code, "%s: %s", target, w.Body)
	text := regexp.MustCompile(`\n\s*\n+`).ReplaceAllString(w.Body.String(), "\n")
	text = regexp.MustCompile(`<g><title>[^<]*: 0 enqueued, 0 done, 0 failed</title>.*?</g>`).ReplaceAllString(text, "") // empty chart intervals
	text = instance.ReplaceAllString(text, "<bdi>instance</bdi>")
	text = milliseconds.ReplaceAllString(text, "${1}Z")
	path := filepath.Join("testdata", name+".html")
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o750))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), text, "%s: go test -run Golden ./ui -update writes it anew", name)
}

// milliseconds of a time depend on the turns of goroutines.
var milliseconds = regexp.MustCompile(`(T\d\d:\d\d:\d\d)\.\d+Z`)

var instance = regexp.MustCompile(`<bdi>[^<]*-\d+-[A-Z2-7]{10}</bdi>`)

// Pages match their golden files, so every change to a page shows up in review.
func TestPages_Golden(t *testing.T) {
	honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
		ctx := context.Background()
		h := dashboard(t, db, &ui.Options{Authorize: ui.AllowAll, Enqueue: true, Links: func(j *honker.JobInfo) []ui.Link {
			return []ui.Link{{Text: "Trace", URL: fmt.Sprintf("https://traces.example/%d", j.ID)}, {Text: "Bad", URL: "javascript:alert(1)"}}
		}})
		golden(t, h, "overview-empty", "")
		golden(t, h, "jobs-empty", "jobs?phase=held")
		golden(t, h, "dead-empty", "dead")
		something(t, db)
		time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second))) // its milliseconds depend on the turns of goroutines
		running, err := queue(db, "mails").Enqueue(ctx, json.RawMessage(`{"n":12345678901234567890,"s":"\u0041<b>"}`), honker.Key("acme"), honker.Unique("u", nil))
		require.NoError(t, err)
		_, err = queue(db, "mails").Claim(ctx, "worker-1", 1)
		require.NoError(t, err)
		require.NoError(t, queue(db, "mails").SetLimits(ctx, honker.Limits{Running: 3, PerKey: 1, Rate: honker.Rate{N: 5, Per: time.Second}}))
		time.Sleep(10 * time.Second)
		golden(t, h, "overview", "")
		golden(t, h, "queue", "queue?name=mails")
		golden(t, h, "jobs", "jobs?queue=mails")
		golden(t, h, "job-dead", "job?id=1")
		golden(t, h, "job-running", fmt.Sprintf("job?id=%d", running))
		golden(t, h, "dead", "dead")
		golden(t, h, "streams", "streams")
		golden(t, h, "stream", "stream?topic=orders")
		golden(t, h, "locks", "locks")
		golden(t, h, "batches", "batches")
		golden(t, h, "job-waits", "job?id=3")
		require.Equal(t, http.StatusSeeOther, post(h, "/requeue", "id", "1").Code)
		golden(t, h, "audit", "audit")
		readOnly := dashboard(t, db, &ui.Options{Authorize: ui.AllowAll, ReadOnly: true})
		golden(t, readOnly, "queue-readonly", "queue?name=mails")
		for target := range crawl(t, readOnly) {
			require.NotContains(t, get(readOnly, "/"+target).Body.String(), `method="post" action="re`, target)
		}
	})
}

// Each action suggested for a problem links to the page where an operator can take it. A job's page offers the verbs
// as buttons.
func TestPages_Actions(t *testing.T) {
	honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
		h := dashboard(t, db, nil)
		mails := queue(db, "mails")
		_, err := mails.Enqueue(t.Context(), json.RawMessage(`1`), honker.Delay(time.Hour))
		require.NoError(t, err)
		_, err = mails.Pause(t.Context(), nil)
		require.NoError(t, err)
		page := get(h, "/job?id=1").Body.String()
		require.Contains(t, page, `<form method="post" action="resume"><input type="hidden" name="back" value="job?id=1"><input type="hidden" name="queue" value="mails"><button class="primary">Resume</button>`)
		require.Contains(t, page, `<button class="primary">Run 1 now</button>`)
		time.Sleep(26 * time.Hour)
		require.Contains(t, get(h, "/").Body.String(), `<p><a href="queue?name=mails">resume queue &#34;mails&#34;</a></p>`)
		_, err = mails.Resume(t.Context())
		require.NoError(t, err)
		page = get(h, "/").Body.String()
		require.Contains(t, page, `<p><a href="queue?name=mails">list the workers of queue &#34;mails&#34;</a></p>`)
		require.Contains(t, page, `<p><a href="jobs?phase=ready&amp;queue=mails">list the ready jobs of queue &#34;mails&#34;</a></p>`)
	})
}

// crawl requests every page that can be reached through links.
func crawl(t *testing.T, h http.Handler) map[string]string {
	t.Helper()
	pages, todo := map[string]string{}, []string{""}
	for len(todo) > 0 && len(pages) < 300 {
		target := todo[0]
		todo = todo[1:]
		if _, seen := pages[target]; seen {
			continue
		}
		w := get(h, "/"+target)
		require.Equal(t, http.StatusOK, w.Code, "%s: %s", target, w.Body)
		pages[target] = w.Body.String()
		for _, m := range links.FindAllStringSubmatch(w.Body.String(), -1) {
			link := strings.TrimPrefix(unescape(m[1]), "./")
			name, _, _ := strings.Cut(link, "?")
			for _, rt := range ui.Routes() {
				if rt.Path == name && !rt.Post && name != "events" && name != "export" && name != "find" {
					todo = append(todo, link)
				}
			}
		}
	}
	return pages
}

func unescape(s string) string {
	return strings.NewReplacer("&amp;", "&", "&#43;", "+", "&#34;", `"`, "&#39;", "'").Replace(s)
}

// evil lists names and other text with markup, paths, queries and other content that needs escaping.
var evil = []string{
	`</script><img src=x onerror=alert(1)>`, `"><img src=x onerror=alert(1)>`, `' onmouseover='alert(1)`, `javascript:alert(1)`,
	`../../etc/passwd`, `a/b.c%2Fd`, `?x=1&y=2#z`, "{{.Data}}", "tab\tnew\nline\r\nX-Evil: 1", "\u202egnirts\u200b", "é😀\ufffd", "a+b c", strings.Repeat("x", 1000),
}

// Names, payloads and errors are escaped on every page, and links that contain them work.
func TestPages_Hostile(t *testing.T) {
	honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
		ctx := context.Background()
		made := 0
		for i, s := range evil {
			payload, err := json.Marshal(map[string]string{s: s})
			require.NoError(t, err)
			if _, err := queue(db, s).Enqueue(ctx, payload, honker.Key(s), honker.Unique(s, nil)); err != nil {
				require.ErrorIs(t, err, honker.ErrInvalid)
				continue
			}
			made++
			bury(t, db, s, string(payload), s)
			_, err = queue(db, s).Enqueue(ctx, payload, honker.Delay(time.Hour), honker.Key(s))
			require.NoError(t, err)
			_, err = queue(db, s).Pause(ctx, &honker.PauseOptions{Reason: s, By: s})
			require.NoError(t, err)
			hostileStream(t, db, s, payload)
			_ = db.Scheduler().Register(ctx, honker.Schedule{Name: s, Queue: s, Spec: "@every 1h", Payload: s})
			if lock, err := db.TryLock(ctx, s, &honker.LockOptions{Owner: fmt.Sprintf("%d%s", i, s)}); err == nil {
				defer func() { _ = lock.Unlock(ctx) }()
			}
		}
		require.Greater(t, made, 8)
		h := dashboard(t, db, &ui.Options{Authorize: ui.AllowAll, Title: evil[0], Color: `"><img src=x onerror=alert(1)>`, Enqueue: true, By: func(*http.Request) string { return evil[0] }})
		require.Equal(t, http.StatusSeeOther, post(h, "/pause", "queue", evil[0], "reason", evil[1]).Code)
		pages := crawl(t, h)
		require.Greater(t, len(pages), 60)
		for target, body := range pages {
			require.NotContains(t, body, "<img", target)
			require.NotContains(t, body, "' onmouseover='", target)
			require.NotContains(t, body, `href="javascript:`, target)
			require.NotContains(t, body, "ZgotmplZ", target)
			require.Less(t, len(body), 1<<20, target)
		}
	})
}

func hostileStream(t *testing.T, db *honker.DB, s string, payload json.RawMessage) {
	t.Helper()
	ctx := context.Background()
	events := honker.NewStream[json.RawMessage](db, s, nil)
	if _, err := events.Publish(ctx, payload, honker.EventKey(s)); err != nil {
		require.ErrorIs(t, err, honker.ErrInvalid)
		return
	}
	_, err := events.SaveOffset(ctx, s, 0)
	require.NoError(t, err)
	member, err := events.Group(s, &honker.GroupOptions{MaxAttempts: 1}).Join(ctx, s)
	require.NoError(t, err)
	deliveries, err := member.Claim(ctx, 1)
	require.NoError(t, err)
	for _, d := range deliveries {
		require.NoError(t, d.Nack(ctx, errors.New(s)))
	}
}

// Data hidden by Redact does not appear on pages and cannot be searched or downloaded.
func TestPages_Redact(t *testing.T) {
	honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
		ctx := context.Background()
		secret := json.RawMessage(`{"card":"4711-0815"}`)
		for _, name := range []string{"mails", "cards"} {
			_, err := queue(db, name).Enqueue(ctx, secret)
			require.NoError(t, err)
			bury(t, db, name, string(secret), "declined")
		}
		require.NoError(t, queue(db, "mails").SaveResult(ctx, 1, secret, 0))
		_, err := honker.NewStream[json.RawMessage](db, "orders", nil).Publish(ctx, secret)
		require.NoError(t, err)
		require.NoError(t, db.Scheduler().Register(ctx, honker.Schedule{Name: "s", Queue: "cards", Spec: "@every 1h", Payload: secret}))
		h := dashboard(t, db, &ui.Options{Authorize: ui.AllowAll, Redact: func(queue string, p json.RawMessage) json.RawMessage {
			if queue == "cards" {
				return nil
			}
			return json.RawMessage(strings.ReplaceAll(string(p), "4711-0815", "****"))
		}})
		pages := crawl(t, h)
		require.Greater(t, len(pages), 15)
		hidden := 0
		for target, body := range pages {
			body = digits.ReplaceAllString(body, "") // the number in the file's path may contain the secret's digits
			require.NotContains(t, body, "4711", target)
			hidden += strings.Count(body, "****")
		}
		require.NotZero(t, hidden)
		for _, target := range []string{"jobs?contains=4711", "jobs?where=card%3D4711-0815", "export?queue=mails"} {
			w := get(h, "/"+target)
			require.Equal(t, http.StatusBadRequest, w.Code, target)
			require.NotContains(t, get(h, "/jobs").Body.String(), "Payload contains")
		}
		require.Equal(t, http.StatusBadRequest, post(h, "/discard", "contains", "4711").Code)
	})
}

// A download contains the jobs that match the filter in the format of ExportJobs.
func TestPages_Export(t *testing.T) {
	db, h := open(t, nil)
	bury(t, db, "mails", `{"n":1.50}`, "x")
	bury(t, db, "other", `{"n":2}`, "x")
	w := get(h, "/export?queue=mails")
	require.Equal(t, http.StatusOK, w.Code)
	require.Contains(t, w.Header().Get("Content-Disposition"), "attachment")
	require.Equal(t, 1, strings.Count(w.Body.String(), "\n"))
	require.Contains(t, w.Body.String(), `{"n":1.50}`)
}

// With several files, pages have a menu of files. Each page and verb uses the file named in its URL.
func TestPages_Files(t *testing.T) {
	db, other := honkertest.Open(t, nil), honkertest.Open(t, nil)
	_, err := queue(other, "elsewhere").Enqueue(context.Background(), json.RawMessage("1"))
	require.NoError(t, err)
	h := dashboard(t, db, &ui.Options{Authorize: ui.AllowAll, DB: map[string]*honker.DB{"tenant b": other}})
	require.NotContains(t, get(h, "/").Body.String(), "elsewhere")
	body := get(h, "/?db=tenant+b").Body.String()
	require.Contains(t, body, "elsewhere")
	for _, m := range links.FindAllStringSubmatch(body, -1) {
		if strings.HasPrefix(m[1], "jobs") || strings.HasPrefix(m[1], "queue") {
			require.Contains(t, m[1], "db=tenant+b")
		}
	}
	w := post(h, "/pause", "db", "tenant b", "queue", "elsewhere", "back", "./?db=tenant+b")
	require.Equal(t, "./?db=tenant+b&did=pause&in=elsewhere&n=1", w.Header().Get("Location"))
	stats, err := queue(other, "elsewhere").Stats(context.Background())
	require.NoError(t, err)
	require.NotNil(t, stats.Pause)
	require.Equal(t, http.StatusNotFound, get(h, "/?db=nothing").Code)
}

// The overview begins with the problems and their links. If there are none, it says so in one line.
func TestPages_Problems(t *testing.T) {
	honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
		ctx := context.Background()
		h := dashboard(t, db, nil)
		require.Contains(t, get(h, "/").Body.String(), "No problems.")
		_, err := queue(db, "a/b&c").Enqueue(ctx, json.RawMessage("1"))
		require.NoError(t, err)
		bury(t, db, "mails", "1", "x")
		time.Sleep(2 * time.Minute)
		body := get(h, "/").Body.String()
		require.NotContains(t, body, "No problems.")
		for _, target := range []string{"queue?name=a%2Fb%26c", "dead?died_since=1h&amp;queue=mails"} {
			require.Contains(t, body, `<a class="button" href="`+target+`" data-open `)
			require.Equal(t, http.StatusOK, get(h, "/"+unescape(target)).Code)
		}
		require.Less(t, strings.Index(body, "no worker runs"), strings.Index(body, "died in the last hour"), "the worst is first")
	})
}

// The workers page shows workers with their jobs, including workers that are known only from their claims.
func TestPages_Workers(t *testing.T) {
	db, h := open(t, nil)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	enqueue(t, db)
	_, err := queue(db, "mails").Claim(ctx, "by-hand", 1)
	require.NoError(t, err)
	enqueue(t, db)
	started, ended := make(chan struct{}), make(chan error)
	go func() {
		ended <- queue(db, "mails").Work(ctx, func(ctx context.Context, _ *honker.Job[json.RawMessage]) error {
			close(started)
			<-ctx.Done()
			return nil
		}, &honker.WorkOptions{WorkerID: "worker-1", Workers: 2, DrainTimeout: time.Millisecond})
	}()
	<-started
	for _, target := range []string{"/workers", "/queue?name=mails"} {
		require.Eventually(t, func() bool {
			body := get(h, target).Body.String()
			return strings.Contains(body, "worker-1") && strings.Contains(body, "alive") && strings.Contains(body, "1 of 2") && strings.Contains(body, "foreign")
		}, testkit.Timeout, 10*time.Millisecond, target)
	}
	cancel()
	require.NoError(t, <-ended)
}

// Encrypted arguments are shown only if Authorize allows the verb "unseal".
func TestPages_Sealed(t *testing.T) {
	ctx := context.Background()
	codec, err := seal.New(seal.Keys{Current: "2026-11", Ring: map[string][]byte{"2026-11": make([]byte, 32)}}, nil)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "app.db")
	db := honkertest.OpenFile(t, path, &honker.Options{Codec: codec})
	id, err := queue(db, "mails").Enqueue(ctx, json.RawMessage(`{"iban":"DE4711"}`))
	require.NoError(t, err)
	target := fmt.Sprintf("/job?id=%d", id)
	require.Contains(t, get(dashboard(t, db, nil), target).Body.String(), "DE4711")
	without := honkertest.OpenFile(t, path, nil)
	for name, h := range map[string]http.Handler{
		"looks only": dashboard(t, db, &ui.Options{Authorize: ui.ReadOnly}),
		"has no key": dashboard(t, without, nil),
		"may not unseal": dashboard(t, db, &ui.Options{Authorize: func(_ *http.Request, a ui.Access) error {
			if a.Verb == "unseal" {
				return errors.New("no")
			}
			return nil
		}}),
	} {
		for _, target := range []string{target, "/jobs"} {
			body := get(h, target).Body.String()
			require.Contains(t, body, "2026-11", name)
			require.NotContains(t, body, "DE4711", name)
			require.NotContains(t, body, "$seal", name)
		}
	}
}

// A handler's progress is shown on its job's page and in lists.
func TestPages_Progress(t *testing.T) {
	db, h := open(t, nil)
	ctx := context.Background()
	enqueue(t, db)
	jobs, err := queue(db, "mails").Claim(ctx, "w", 1)
	require.NoError(t, err)
	jobs[0].SetProgress(30, 120, "<b>page 30</b>")
	require.NoError(t, jobs[0].Extend(ctx, time.Minute))
	body := get(h, "/job?id=1").Body.String()
	require.Contains(t, body, "30 of 120")
	require.Contains(t, body, "&lt;b&gt;page 30&lt;/b&gt;")
	require.Contains(t, body, `<rect class="fill" width="20"`)
	require.Contains(t, get(h, "/queue?name=mails").Body.String(), `<rect class="fill" width="20"`)
}

// digits matches the number in the name of a test's temporary directory.
var digits = regexp.MustCompile(`(TestPages_Redact)\d+`)
