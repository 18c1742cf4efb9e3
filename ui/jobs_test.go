package ui_test

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/testkit"
	"github.com/honker-go/honker/ui"
)

// hay fills a file with 300 jobs, of which the given jobs contain the word needle.
func hay(t *testing.T, db *honker.DB, needles ...int64) {
	t.Helper()
	testkit.StoreLive(t, db, 300, func(n int64) testkit.StoredJob {
		for _, needle := range needles {
			if n == needle {
				return testkit.StoredJob{Queue: "mails", Payload: `"needle"`}
			}
		}
		return testkit.StoredJob{Queue: "mails", Payload: `"hay"`}
	})
}

// A search stops after the page's budget. Its link continues the search at exactly that position and keeps the jobs
// found so far. The page says that no job matches only once all jobs were looked at.
func TestJobs_SearchGoesOn(t *testing.T) {
	for name, needles := range map[string][]int64{"three": {1, 299, 150}, "none": nil} {
		t.Run(name, func(t *testing.T) {
			defer ui.SearchFor(1)()
			db, h := open(t, nil)
			hay(t, db, needles...)
			target, requests := "jobs?contains=needle", 0
			for ; ; requests++ {
				require.Less(t, requests, 40)
				page := get(h, "/"+target).Body.String()
				link := goOn.FindStringSubmatch(page)
				if link == nil {
					button := goOnButton.FindStringSubmatch(page)
					if button == nil {
						require.Equal(t, len(needles) == 0, strings.Contains(page, "No job matches."))
						for _, id := range needles {
							require.Equal(t, 1, strings.Count(page, fmt.Sprintf(`<tr id="j%d"`, id)))
						}
						break
					}
					target = "jobs?contains=needle&on=" + unescape(button[1])
					continue
				}
				require.NotContains(t, page, "No job matches.")
				require.Contains(t, page, " of 300 jobs")
				target = unescape(link[1])
			}
			require.NotZero(t, requests, "the first page has looked at all")
		})
	}
}

var (
	goOn       = regexp.MustCompile(`href="(jobs\?[^"]*)" data-on>go on`)
	goOnButton = regexp.MustCompile(`name="on" value="([^"]*)" data-on>go on`)
)

// A job that no longer matches leaves a search that goes on. A full page has a next page instead.
func TestJobs_SearchKeepsMatches(t *testing.T) {
	defer ui.SearchFor(1)()
	db, h := open(t, nil)
	hay(t, db, 299, 298, 297)
	first := get(h, "/jobs?contains=needle").Body.String()
	on := goOnButton.FindStringSubmatch(first)
	require.NotNil(t, on)
	_, err := queue(db, "mails").Cancel(t.Context(), 298)
	require.NoError(t, err)
	page := get(h, "/jobs?contains=needle&on="+on[1]).Body.String()
	require.Contains(t, page, `<tr id="j299"`)
	require.NotContains(t, page, `<tr id="j298"`)
	require.Contains(t, page, `<tr id="j297"`)
	full := get(h, "/jobs?contains=needle&limit=2&on="+on[1]).Body.String()
	require.NotContains(t, full, "data-search")
	require.Contains(t, full, "Next page")
}

// The last page of a search that was given a forged position is an error that names the parameter.
func TestJobs_SearchForged(t *testing.T) {
	db, h := open(t, nil)
	hay(t, db)
	for _, on := range []string{"x", "1~", "1~1", "-1~1~", "1~!~", "1~0~", "1~1~garbage", strings.Repeat("1", 9000), "1~1~a&on=2", "99999999999999999999~~"} {
		require.Equal(t, http.StatusBadRequest, get(h, "/jobs?contains=x&on="+on).Code, on)
	}
	require.Equal(t, http.StatusOK, get(h, "/jobs?contains=x&on=1~1.2~").Code)
}
