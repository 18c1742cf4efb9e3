package ui_test

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/ui"
)

// form returns the values that a browser without scripts sends for a list's form. They include the boxes that are
// already checked and those of the jobs in more.
func form(t *testing.T, page string, more ...int64) url.Values {
	t.Helper()
	_, text, found := strings.Cut(page, `<form method="post" id="selection">`)
	require.True(t, found)
	text, _, _ = strings.Cut(text, "</form>")
	v := url.Values{}
	for _, m := range regexp.MustCompile(`<input type="hidden" name="([^"]*)" value="([^"]*)">`).FindAllStringSubmatch(text, -1) {
		v.Add(m[1], unescape(m[2]))
	}
	for _, m := range regexp.MustCompile(`name="pick" value="(\d+)"( checked)?`).FindAllStringSubmatch(text, -1) {
		id, err := strconv.ParseInt(m[1], 10, 64)
		require.NoError(t, err)
		if m[2] != "" || slices.Contains(more, id) {
			v.Add("pick", m[1])
		}
	}
	return v
}

// turn submits a form and returns the page it redirects to.
func turn(t *testing.T, h http.Handler, v url.Values, after string) (target, page string) {
	t.Helper()
	if after != "" {
		v.Set("after", after)
	}
	w := get(h, "/jobs?"+v.Encode())
	require.Equal(t, http.StatusSeeOther, w.Code, w.Body)
	target = w.Header().Get("Location")
	for _, name := range []string{"back=", "pick=", "selection="} {
		require.NotContains(t, target, name)
	}
	return target, get(h, "/"+target).Body.String()
}

func next(t *testing.T, page string) string {
	t.Helper()
	m := regexp.MustCompile(`name="after" value="([^"]*)">Next page`).FindStringSubmatch(page)
	require.NotNil(t, m)
	return unescape(m[1])
}

// A selection is kept on the list's other pages until a verb has processed it.
func TestSelection_Pages(t *testing.T) {
	db, h := open(t, nil)
	for range 7 {
		bury(t, db, "mails", "1", "x")
	}
	bury(t, db, "other", "1", "x")
	first := get(h, "/jobs?queue=mails&limit=3&order=oldest").Body.String()
	target, second := turn(t, h, form(t, first, 1, 3), next(t, first))
	require.Contains(t, target, "selected=1.2")
	require.Contains(t, target, "queue=mails")
	require.Contains(t, second, "with 2 of other pages")
	_, third := turn(t, h, form(t, second, 5), next(t, second))
	require.Contains(t, third, "with 3 of other pages")

	// Back on the first page, its boxes are checked. Unchecking a box removes its job from the selection.
	_, again := turn(t, h, form(t, third), "")
	require.Equal(t, []string{"1", "3"}, form(t, again)["pick"])
	v := form(t, again)
	v["pick"] = []string{"3"}
	_, again = turn(t, h, v, next(t, again))
	require.Equal(t, []string{"5"}, form(t, again)["pick"])
	require.Contains(t, again, "with 1 of other pages")

	// The confirmation page counts the whole selection, and its back link preserves the selection.
	v = form(t, again, 4)
	w := ask(h, http.MethodPost, "/discard", v)
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	require.Contains(t, w.Body.String(), "Discard 3 jobs")
	require.Contains(t, w.Body.String(), `name="id" value="3,4,5"`)
	require.Contains(t, w.Body.String(), "selected=3.1.1")
	require.EqualValues(t, 7, deadJobs(t, db, "mails"))
	maps.Copy(v, url.Values{"confirm": {"1"}, "n": {"3"}})
	w = ask(h, http.MethodPost, "/discard", v)
	require.Equal(t, http.StatusSeeOther, w.Code, w.Body)
	require.NotContains(t, w.Header().Get("Location"), "selected")
	require.EqualValues(t, 4, deadJobs(t, db, "mails"))
	require.EqualValues(t, 1, deadJobs(t, db, "other"))
}

// A selection in a queue's list is restricted to that queue, and Access.Queue is set.
func TestSelection_Access(t *testing.T) {
	db, _ := open(t, nil)
	var asked ui.Access
	h := dashboard(t, db, &ui.Options{Authorize: func(_ *http.Request, a ui.Access) error {
		if a.Write {
			asked = a
		}
		return nil
	}})
	mine, other := []int64{bury(t, db, "mails", "1", "x"), bury(t, db, "mails", "1", "x")}, bury(t, db, "other", "1", "x")
	pick := []string{"selection", "1", "pick", fmt.Sprint(mine[0]), "pick", fmt.Sprint(mine[1]), "pick", fmt.Sprint(other)}
	w := post(h, "/discard", append(pick, "queue", "mails")...)
	require.Equal(t, "mails", asked.Queue)
	require.Equal(t, []string{"mails"}, asked.Filter.Queues)
	require.Len(t, asked.Filter.IDs, 3)
	require.Contains(t, w.Body.String(), "Discard 2 jobs")
	w = post(h, "/discard", pick...)
	require.Empty(t, asked.Queue)
	require.Contains(t, w.Body.String(), "Discard 3 jobs")
}

// At most a thousand jobs can be selected. The list shows the limit, and verbs refuse larger selections.
func TestSelection_Full(t *testing.T) {
	_, h := open(t, nil)
	some := func(from, to int) url.Values {
		v := url.Values{"selection": {"1"}}
		for id := from; id <= to; id++ {
			v.Add("pick", strconv.Itoa(id))
		}
		return v
	}
	target, page := turn(t, h, some(1, 999), "")
	require.Less(t, len(target), 2100)
	require.NotContains(t, page, "There can be no more")
	u, err := url.Parse(target)
	require.NoError(t, err)
	more := some(1000, 1003)
	more.Set("selected", u.Query().Get("selected"))
	_, page = turn(t, h, more, "")
	require.Contains(t, page, "1,000 jobs are selected. This is the maximum")
	w := ask(h, http.MethodPost, "/discard", more)
	require.Equal(t, http.StatusBadRequest, w.Code)
	require.Contains(t, w.Body.String(), "more than 1,000 jobs are selected")

	for _, bad := range []string{"x!", "0", "-1", "1..1", ".", "1y2p0ij32e8e7.1y2p0ij32e8e7", strings.Repeat("1.", 1000) + "1"} {
		w := get(h, "/jobs?selected="+url.QueryEscape(bad))
		require.Equal(t, http.StatusBadRequest, w.Code, bad)
		require.Contains(t, w.Body.String(), "selected: ", bad)
	}
}
