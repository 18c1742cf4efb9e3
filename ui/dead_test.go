package ui_test

import (
	"net/http"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/testkit"
	"github.com/honker-go/honker/ui"
)

// lookAtMore matches the link on the dead letters page that groups more jobs.
var lookAtMore = regexp.MustCompile(`href="(dead\?[^"]*)">search more`)

// The page groups only the newest dead letters. It shows lower bounds and a link that groups more jobs.
func TestDead_Newest(t *testing.T) {
	db, h := open(t, nil)
	fill := testkit.Numbers(2000) + `INSERT INTO _honker_dead (queue, payload, last_error, died_at)
SELECT 'mails', '1', 'no route to ' || n, 100 + n FROM some`
	testkit.Exec(t, db, fill)
	page := get(h, "/dead").Body.String()
	require.Contains(t, page, "2,000 examined")
	require.NotContains(t, page, "search more")
	testkit.Exec(t, db, `INSERT INTO _honker_dead (queue, payload, last_error, died_at) VALUES ('mails', '1', 'out of paper', 1)`)

	page = get(h, "/dead?queue=mails&did=discard&n=1").Body.String()
	require.Contains(t, page, "of the newest 2,000; there may be others")
	require.Contains(t, page, ">2,000&#43;</a>")
	require.NotContains(t, page, "out of paper")
	link := lookAtMore.FindStringSubmatch(page)
	require.Equal(t, "dead?more=1&queue=mails", unescape(link[1]), "the filter stays, and what was done is not said again")
	page = get(h, "/"+unescape(link[1])).Body.String()
	require.Contains(t, page, "2,001 examined")
	require.Contains(t, page, "out of paper")
}

// A search for a rare match stops after the page's budget. The page does not claim that there are no matches.
func TestDead_SearchEnds(t *testing.T) {
	defer ui.SearchFor(1)()
	db, h := open(t, nil)
	testkit.Exec(t, db, testkit.Numbers(6000)+`INSERT INTO _honker_dead (queue, payload, last_error, died_at)
SELECT 'mails', '1', iif(n = 1, 'out of paper', 'no route to ' || n), 100 + n FROM some`)
	page := get(h, "/dead?error=paper").Body.String()
	require.Contains(t, page, "None of the last that died")
	require.NotContains(t, page, "No dead letters")
	link := lookAtMore.FindStringSubmatch(page)
	require.NotEmpty(t, link)
	require.Contains(t, get(h, "/"+unescape(link[1])).Body.String(), "1 examined")
}

// A queue's page shows the number of deaths in the last hour as a lower bound if it hasn't counted them all.
func TestDead_OfQueue(t *testing.T) {
	db, h := open(t, nil)
	testkit.Exec(t, db, testkit.Numbers(2001)+`INSERT INTO _honker_dead (queue, payload, last_error, died_at)
SELECT 'mails', '1', 'no route to ' || n, ? FROM some`, time.Now().Unix())
	w := get(h, "/queue?name=mails")
	require.Equal(t, http.StatusOK, w.Code)
	require.Contains(t, w.Body.String(), `<td class="n bad">2,000&#43;</td>`)
}
