package ui_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
	"github.com/honker-go/honker/ui"
)

// noRoute is a dead job. Those with higher numbers died later.
func noRoute(n int64) testkit.StoredJob {
	return testkit.StoredJob{Queue: "mails", Error: fmt.Sprint("no route to ", n), DiedAt: 100 + n}
}

// counted requests a page until all dead letters have been counted.
func counted(t *testing.T, h http.Handler, target string) (page string) {
	t.Helper()
	testkit.Eventually(t, testkit.Timeout, "the count", func() bool {
		page = get(h, target).Body.String()
		return !strings.Contains(page, "being counted")
	})
	return page
}

// The first page groups the newest dead letters and shows lower bounds. The next groups all of them, as the command does.
func TestDead_CountsAll(t *testing.T) {
	db, h := open(t, nil)
	testkit.StoreDead(t, db, 2001, func(n int64) testkit.StoredJob {
		j := noRoute(n)
		if n <= 3 {
			j.Error = "out of paper"
		}
		return j
	})
	page := get(h, "/dead?queue=mails").Body.String()
	require.Contains(t, page, "the newest 1,000 in 1 kind; all are being counted")
	require.Contains(t, page, ">1,000&#43;</a>")
	require.Contains(t, page, "data-next=", "the page loads itself again")
	require.NotContains(t, page, "out of paper")

	page = counted(t, h, "/dead?queue=mails")
	require.Contains(t, page, "2,001 in 2 kinds")
	report, err := admin.DeadGroups(t.Context(), db, admin.JobFilter{})
	require.NoError(t, err)
	for _, g := range report.Groups {
		require.Contains(t, page, fmt.Sprintf(">%s</a>", honker.Count{N: g.N}))
		require.Contains(t, page, g.Fingerprint)
	}
	require.Contains(t, counted(t, h, "/dead?queue=other"), "No dead letters match")
}

// A verb of the page changes the counts at once.
func TestDead_CountsAgainAfterVerb(t *testing.T) {
	db, h := open(t, nil)
	testkit.StoreDead(t, db, 1500, noRoute)
	require.Contains(t, counted(t, h, "/dead"), "1,500 in 1 kind")
	require.Equal(t, http.StatusSeeOther, post(h, "/requeue", "id", "1").Code)
	require.Contains(t, counted(t, h, "/dead"), "1,499 in 1 kind")
}

// A change by another process is counted again later. Meanwhile, the page shows the age of its counts.
func TestDead_CountsAgainAfterChange(t *testing.T) {
	honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
		h := dashboard(t, db, nil)
		testkit.StoreDead(t, db, 1500, noRoute)
		require.Contains(t, counted(t, h, "/dead"), "1,500 in 1 kind")
		time.Sleep(3 * time.Second)
		require.Contains(t, get(h, "/dead").Body.String(), "1,500 in 1 kind, counted")
		require.NotContains(t, get(h, "/dead").Body.String(), "data-next", "nothing has changed")
		_, err := admin.Discard(t.Context(), db, admin.JobFilter{IDs: []int64{1500}}, nil)
		require.NoError(t, err)
		require.Contains(t, get(h, "/dead").Body.String(), "1,500 in 1 kind, counted", "the last count, while another runs")
		synctest.Wait()
		require.Contains(t, get(h, "/dead").Body.String(), "1,499 in 1 kind")
	})
}

// A rare match is found by the count if the page's own search has ended before.
func TestDead_SearchEnds(t *testing.T) {
	defer ui.SearchFor(1)()
	db, h := open(t, nil)
	testkit.StoreDead(t, db, 6000, func(n int64) testkit.StoredJob {
		if n == 1 {
			return testkit.StoredJob{Queue: "mails", Error: "out of paper", DiedAt: 101}
		}
		return noRoute(n)
	})
	page := get(h, "/dead?error=paper").Body.String()
	require.Contains(t, page, "None among the last that died. All are being counted.")
	require.NotContains(t, page, "No dead letters")
	require.Contains(t, counted(t, h, "/dead?error=paper"), "1 in 1 kind")
}

// The parts of an error that vary are marked. They are escaped like the others.
func TestDead_Parts(t *testing.T) {
	db, h := open(t, nil)
	bury(t, db, "mails", `1`, `rm /tmp/101b: "<b>" is <i>`)
	page := get(h, "/dead").Body.String()
	require.Contains(t, page, `rm /tmp/<mark>101b</mark>: <mark>&#34;&lt;b&gt;&#34;</mark> is &lt;i&gt;</p>`)
}

// The verb that helps comes first: to requeue, unless the jobs were rejected or their queue still fails.
func TestDead_Verb(t *testing.T) {
	honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
		ctx := t.Context()
		h := dashboard(t, db, nil)
		bury(t, db, "rejected", `1`, "no such mailbox")
		page := get(h, "/dead").Body.String()
		require.Contains(t, page, "rejected or expired with attempts left")
		require.Less(t, strings.Index(page, "Discard …"), strings.Index(page, "Requeue …"))

		spent := queue(db, "spent")
		for range 30 {
			_, err := spent.Enqueue(ctx, json.RawMessage(`1`), honker.MaxAttempts(1))
			require.NoError(t, err)
		}
		_, err := spent.WorkDue(ctx, func(context.Context, *honker.Job[json.RawMessage]) error { return errors.New("refused") }, nil)
		require.NoError(t, err)
		time.Sleep(10 * time.Second) // until the traffic has been written
		page = get(h, "/dead?queue=spent").Body.String()
		require.Contains(t, page, "3 / min")
		require.Contains(t, page, "the queue still fails: requeue later")
		require.Less(t, strings.Index(page, "Requeue …"), strings.Index(page, "Discard …"))
		require.NotContains(t, page, `class="primary">Requeue`)
		time.Sleep(30 * time.Minute)
		page = get(h, "/dead?queue=spent").Body.String()
		require.Contains(t, page, `class="primary">Requeue`)
		require.NotContains(t, page, "still fails")
	})
}

// A queue's page shows the number of deaths in the last hour as a lower bound if it hasn't counted them all.
func TestDead_OfQueue(t *testing.T) {
	db, h := open(t, nil)
	testkit.StoreDead(t, db, 2001, func(n int64) testkit.StoredJob {
		return testkit.StoredJob{Queue: "mails", Error: fmt.Sprint("no route to ", n)}
	})
	w := get(h, "/queue?name=mails")
	require.Equal(t, http.StatusOK, w.Code)
	require.Contains(t, w.Body.String(), `>2,000&#43; died</a>`)
}
