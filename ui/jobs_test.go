package ui_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/testkit"
	"github.com/honker-go/honker/ui"
)

// A search stops after the page's budget. Its link continues the search at exactly that position.
func TestJobs_SearchEnds(t *testing.T) {
	defer ui.SearchFor(1)()
	db, h := open(t, nil)
	testkit.Exec(t, db, testkit.Numbers(300)+`INSERT INTO _honker_live (queue, payload) SELECT 'mails', iif(n = 1, '"needle"', '"hay"') FROM some`)
	target, pages := "jobs?contains=needle", 0
	for ; ; pages++ {
		require.Less(t, pages, 10)
		page := get(h, "/"+target).Body.String()
		if strings.Contains(page, "job?id=1") {
			break
		}
		require.Contains(t, page, "examined")
		target = unescape(searchOn.FindStringSubmatch(page)[1])
	}
	require.NotZero(t, pages, "the first page has looked at all")
}

var searchOn = regexp.MustCompile(`href="(jobs\?[^"]*)">search on`)
