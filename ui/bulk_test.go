package ui_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
	"github.com/honker-go/honker/ui"
)

func deadJobs(t *testing.T, db *honker.DB, name string) int64 {
	t.Helper()
	stats, err := queue(db, name).Stats(context.Background())
	require.NoError(t, err)
	return stats.Dead.N
}

var hiddenN = regexp.MustCompile(`name="n" value="(\d+)"`)

// The first request for all matching jobs shows a confirmation page and changes nothing. The second changes the jobs.
func TestBulk_AsksFirst(t *testing.T) {
	db, h := open(t, nil)
	for i := range 7 {
		bury(t, db, "mails", strconv.Itoa(i), "no route to host 10.0.0."+strconv.Itoa(i))
	}
	bury(t, db, "mails", "8", "out of memory")
	page := get(h, "/dead").Body.String()
	print := regexp.MustCompile(`name="fingerprint" value="([^"]+)"`).FindStringSubmatch(page)[1]
	filter := []string{"queue", "mails", "phase", "dead", "fingerprint", print, "back", "dead?queue=mails"}

	w := post(h, "/requeue", filter...)
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	require.Contains(t, w.Body.String(), "Requeue 7 jobs")
	require.Equal(t, "7", hiddenN.FindStringSubmatch(w.Body.String())[1])
	require.EqualValues(t, 8, deadJobs(t, db, "mails"))

	w = post(h, "/requeue", append(filter, "confirm", "1", "n", "7", "spread", "10m")...)
	require.Equal(t, http.StatusSeeOther, w.Code, w.Body)
	back := w.Header().Get("Location")
	require.Contains(t, back, "dead?did=requeue&n=7&of=")
	require.EqualValues(t, 1, deadJobs(t, db, "mails"))
	answer := get(h, "/"+back).Body.String()
	require.Contains(t, answer, "7 jobs requeued, spread over 10m. ")
	link := regexp.MustCompile(`href="([^"]+)">Those that have not run`).FindStringSubmatch(answer)
	require.NotNil(t, link)
	require.Equal(t, 7, strings.Count(get(h, "/"+unescape(link[1])).Body.String(), "<tr id=\"j"), unescape(link[1]))
	stats, err := queue(db, "mails").Stats(context.Background())
	require.NoError(t, err)
	require.NotZero(t, stats.Scheduled.N, "they are spread")
}

// To discard all matching jobs, the operator must type how many there are.
func TestBulk_Typed(t *testing.T) {
	db, h := open(t, nil)
	for range 12 {
		bury(t, db, "mails", "1", "x")
	}
	base := []string{"queue", "mails", "phase", "dead", "confirm", "1", "n", "12"}
	for _, typed := range []string{"", "11", "twelve"} {
		w := post(h, "/discard", append(base, "typed", typed)...)
		require.Equal(t, http.StatusConflict, w.Code, typed)
		require.Contains(t, w.Body.String(), "Type 12 to continue")
	}
	require.EqualValues(t, 12, deadJobs(t, db, "mails"))
	require.Equal(t, http.StatusSeeOther, post(h, "/discard", append(base, "typed", "12")...).Code)
	require.Zero(t, deadJobs(t, db, "mails"))
}

// If there are many more jobs than the page showed, the confirmation page is shown again. A few more are accepted.
func TestBulk_Grown(t *testing.T) {
	db, h := open(t, nil)
	for range 13 {
		bury(t, db, "mails", "1", "x")
	}
	base := []string{"queue", "mails", "phase", "dead", "confirm", "1"}
	w := post(h, "/requeue", append(base, "n", "10")...)
	require.Equal(t, http.StatusConflict, w.Code)
	require.Contains(t, w.Body.String(), "There were 10")
	require.Equal(t, "13", hiddenN.FindStringSubmatch(w.Body.String())[1])
	require.EqualValues(t, 13, deadJobs(t, db, "mails"))
	require.Equal(t, http.StatusSeeOther, post(h, "/requeue", append(base, "n", "12")...).Code)
	require.Zero(t, deadJobs(t, db, "mails"))
}

// An empty selection does not match all jobs.
func TestBulk_Selection(t *testing.T) {
	db, h := open(t, nil)
	ids := []int64{bury(t, db, "a", "1", "x"), bury(t, db, "b", "1", "x"), bury(t, db, "b", "1", "x")}
	w := post(h, "/discard", "selection", "1")
	require.Equal(t, http.StatusBadRequest, w.Code)
	require.Contains(t, w.Body.String(), "no job is selected")

	two := []string{"selection", "1", "pick", strconv.FormatInt(ids[0], 10), "pick", strconv.FormatInt(ids[1], 10)}
	w = post(h, "/discard", two...)
	require.Contains(t, w.Body.String(), "Discard 2 jobs")
	require.NotContains(t, w.Body.String(), "to go on", "a selection is not typed")
	require.Equal(t, http.StatusSeeOther, post(h, "/discard", append(two, "confirm", "1", "n", "2")...).Code)
	require.EqualValues(t, 0, deadJobs(t, db, "a"))
	require.EqualValues(t, 1, deadJobs(t, db, "b"))
}

// A verb without a filter is refused.
func TestBulk_EmptyFilter(t *testing.T) {
	db, h := open(t, nil)
	bury(t, db, "a", "1", "x")
	for _, verb := range []string{"requeue", "discard", "bury", "cancel", "run-now"} {
		require.Equal(t, http.StatusBadRequest, post(h, "/"+verb, "confirm", "1", "n", "100").Code, verb)
	}
	require.EqualValues(t, 1, deadJobs(t, db, "a"))
	require.Equal(t, http.StatusOK, post(h, "/requeue", "all", "1").Code, "all of them is said")
}

// A long-running change is done in parts. The page shows how many jobs remain, along with a button to continue.
func TestBulk_InParts(t *testing.T) {
	db, h := open(t, nil)
	q := queue(db, "mails")
	ctx := context.Background()
	args := make([]json.RawMessage, 9000) // counts of up to 10,000 jobs are not cached
	for i := range args {
		args[i] = json.RawMessage("1")
	}
	_, err := q.EnqueueMany(ctx, args)
	require.NoError(t, err)
	parts, left := 0, int64(9000)
	for within := time.Millisecond; parts < 100; parts++ {
		undo := ui.ActFor(within)
		w := post(h, "/cancel", "queue", "mails", "confirm", "1", "n", "9000", "typed", "9000")
		undo()
		if w.Code == http.StatusSeeOther {
			break
		}
		require.Equal(t, http.StatusConflict, w.Code, w.Body)
		require.Contains(t, w.Body.String(), "The other jobs are unchanged.")
		stats, err := q.Stats(ctx)
		require.NoError(t, err)
		if stats.Ready.N == left {
			within *= 2 // the machine is too slow to find the jobs in that time
		}
		left = stats.Ready.N
	}
	require.NotZero(t, parts, "it was done in one part: make it longer")
	stats, err := q.Stats(ctx)
	require.NoError(t, err)
	require.Zero(t, stats.Ready.N)
}

// Audit entries contain the operator's name and address.
func TestBulk_Audit(t *testing.T) {
	db, _ := open(t, nil)
	h := dashboard(t, db, &ui.Options{Authorize: ui.AllowAll, By: func(r *http.Request) string { return "anna" }})
	id := bury(t, db, "mails", "1", "x")
	require.Equal(t, http.StatusSeeOther, post(h, "/requeue", "id", strconv.FormatInt(id, 10)).Code)
	require.Equal(t, http.StatusSeeOther, post(h, "/pause", "queue", "mails", "reason", "deploy").Code)
	entries, err := admin.Audit(context.Background(), db, nil)
	require.NoError(t, err)
	require.Len(t, entries, 2)
	for _, e := range entries {
		require.Equal(t, "anna", e.Actor)
		require.Equal(t, "192.0.2.1", e.Remote)
	}
	stats, err := queue(db, "mails").Stats(context.Background())
	require.NoError(t, err)
	require.Equal(t, "anna", stats.Pause.By)
	require.Contains(t, get(h, "/audit").Body.String(), "anna")
}

// A verb redirects only to pages in the dashboard.
func TestBulk_Back(t *testing.T) {
	db, h := open(t, nil)
	_ = db
	for back, want := range map[string]string{
		"jobs?queue=a%2Fb":      "jobs?did=pause&in=mails&n=1&queue=a%2Fb",
		"queue?name=x":          "queue?did=pause&in=mails&n=1&name=x",
		"./?q=m":                "./?did=pause&in=mails&n=1&q=m",
		"":                      "./?did=pause&in=mails&n=1",
		"https://evil.example/": "./?did=pause&in=mails&n=1",
		"//evil.example/jobs":   "./?did=pause&in=mails&n=1",
		"/jobs":                 "./?did=pause&in=mails&n=1",
		"../jobs":               "./?did=pause&in=mails&n=1",
		"javascript:alert(1)":   "./?did=pause&in=mails&n=1",
		"discard?all=1":         "./?did=pause&in=mails&n=1",
		"jobs\r\nX-A: b":        "./?did=pause&in=mails&n=1",
	} {
		w := post(h, "/pause", "queue", "mails", "back", back)
		require.Equal(t, http.StatusSeeOther, w.Code, back)
		require.Equal(t, want, w.Header().Get("Location"), back)
	}
}

// The message about a pause has a button that ends it, and the message about its end a button for the jobs that have died.
// A URL that somebody else has made has neither.
func TestFlash_Pause(t *testing.T) {
	db, h := open(t, nil)
	bury(t, db, "mails", "1", "no route to host")
	const undo, requeue = "Undo: resume", "Requeue its dead jobs of the last day"
	require.NotContains(t, get(h, "/?did=pause&in=mails&n=1").Body.String(), undo)
	w := post(h, "/pause", "queue", "mails", "back", "./")
	require.Contains(t, get(h, "/"+w.Header().Get("Location")).Body.String(), undo)
	require.NotContains(t, get(h, "/?did=resume&in=mails&n=1").Body.String(), requeue)
	require.NotContains(t, get(h, "/?did=pause&in=others&n=1").Body.String(), undo)
	w = post(h, "/resume", "queue", "mails", "back", "./")
	page := get(h, "/"+w.Header().Get("Location")).Body.String()
	require.Contains(t, page, requeue)
	require.Contains(t, page, `name="spread" value="10m"`)
	w = post(h, "/requeue", "queue", "mails", "phase", "dead", "spread", "10m")
	require.Contains(t, w.Body.String(), `<input name="spread" placeholder="10m" size="8" value="10m">`)
}

// A page's outcome message can't contain text from its URL.
func TestFlash_NoText(t *testing.T) {
	_, h := open(t, nil)
	for _, query := range []string{"?did=evil&n=1", "?did=requeue&n=evil", "?did=requeue&did=discard", "?did=requeue&n=-1"} {
		body := get(h, "/"+query).Body.String()
		require.NotContains(t, body, "evil")
		require.NotContains(t, body, `id="flash"`, query)
	}
}

// A message about a requeue offers links only for a requeue in the audit log, whatever somebody has put into the URL.
func TestBulk_ForgedMessage(t *testing.T) {
	db, h := open(t, nil)
	id := bury(t, db, "mails", "1", "x")
	r, err := admin.Requeue(t.Context(), db, admin.JobFilter{IDs: []int64{id}, Queues: []string{"mails"}}, nil)
	require.NoError(t, err)
	_, err = admin.RunNow(t.Context(), db, admin.JobFilter{All: true}, nil)
	require.NoError(t, err)
	other, err := admin.Bury(t.Context(), db, admin.JobFilter{All: true}, nil)
	require.NoError(t, err)
	for _, of := range []string{"https://evil.example", "id=x", "0", "-1", "99", strconv.FormatInt(other.Audit, 10), "%zz"} {
		page := get(h, "/dead?did=requeue&n=7&of="+url.QueryEscape(of)).Body.String()
		require.Contains(t, page, "7 jobs requeued.", of)
		require.NotContains(t, page, "Those that have not run", of)
		require.NotContains(t, page, "Undo", of)
	}
	entry := strconv.FormatInt(r.Audit, 10)
	require.Contains(t, get(h, "/dead?did=requeue&n=7&of="+entry).Body.String(), `href="jobs?queue=mails&amp;requeue=`+entry+`">Those that have not run`)
	require.NotContains(t, get(h, "/dead?did=requeue&n=7&over=-1&of="+entry).Body.String(), "requeued.")
	require.NotContains(t, get(h, "/dead?did=discard&n=7&of="+entry).Body.String(), "Undo")
}

// The message about a requeue, and its row on the page Audit, have a button that makes those of its jobs dead again that
// have not run. It asks first.
func TestBulk_UndoRequeue(t *testing.T) {
	db, h := open(t, nil)
	for range 4 {
		bury(t, db, "mails", "1", "no route")
	}
	w := post(h, "/requeue", "queue", "mails", "phase", "dead", "confirm", "1", "n", "4", "back", "dead?queue=mails")
	require.Equal(t, http.StatusSeeOther, w.Code, w.Body)
	const form = `<form method="post" action="bury">`
	answer := get(h, "/"+w.Header().Get("Location")).Body.String()
	require.Contains(t, answer, "4 jobs requeued.")
	require.Contains(t, answer, form)
	require.Contains(t, answer, "<button class=\"primary\">Undo: make them dead again</button>")
	require.Contains(t, get(h, "/audit").Body.String(), form)
	fields := regexp.MustCompile(form + `.*?name="requeue" value="(\d+)"><input type="hidden" name="queue" value="mails">`).FindStringSubmatch(answer)
	require.NotNil(t, fields, answer)
	_, err := queue(db, "mails").Claim(t.Context(), "w", 1)
	require.NoError(t, err)

	undo := []string{"requeue", fields[1], "queue", "mails", "back", "dead?queue=mails"}
	w = post(h, "/bury", undo...)
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	require.Contains(t, w.Body.String(), "Bury 3 jobs")
	require.EqualValues(t, 0, deadJobs(t, db, "mails"))
	w = post(h, "/bury", append(undo, "confirm", "1", "n", "3")...)
	require.Equal(t, http.StatusSeeOther, w.Code, w.Body)
	require.EqualValues(t, 3, deadJobs(t, db, "mails"))
	require.Contains(t, get(h, "/"+w.Header().Get("Location")).Body.String(), "3 jobs made dead.")
	require.Contains(t, get(h, "/audit").Body.String(), "buried 3 jobs of queue mails of requeue "+fields[1])
	require.Contains(t, post(h, "/bury", append(undo, "confirm", "1", "n", "3")...).Header().Get("Location"), "did=nothing")
}

// An operator who may not bury jobs is not offered the button, and a request is refused.
func TestBulk_UndoNeedsRights(t *testing.T) {
	db, _ := open(t, nil)
	bury(t, db, "mails", "1", "no route")
	r, err := admin.Requeue(t.Context(), db, admin.JobFilter{Queues: []string{"mails"}}, nil)
	require.NoError(t, err)
	entry := strconv.FormatInt(r.Audit, 10)
	refuse := func(_ *http.Request, a ui.Access) error {
		if a.Verb == "bury" && a.Queue == "mails" {
			return errors.New("no")
		}
		return nil
	}
	for name, opts := range map[string]*ui.Options{"refused": {Authorize: refuse}, "read-only": {Authorize: ui.ReadOnly}} {
		h := dashboard(t, db, opts)
		for _, page := range []string{"/dead?did=requeue&n=1&of=" + entry, "/audit"} {
			require.NotContains(t, get(h, page).Body.String(), "Undo", name)
		}
		w := post(h, "/bury", "requeue", entry, "queue", "mails", "confirm", "1", "n", "1")
		require.Equal(t, http.StatusForbidden, w.Code, name)
	}
	require.EqualValues(t, 0, deadJobs(t, db, "mails"))
}
