package ui_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
	"github.com/honker-go/honker/ui"
)

// A job that waits for a dead job offers to requeue that job, but only to operators who may do so in its queue. Others
// do not see the name of that queue either.
func TestJob_RemedyNeedsRights(t *testing.T) {
	db, all := open(t, nil)
	dead := bury(t, db, "suppliers", `1`, "no route to host")
	waits, err := queue(db, "mails").Enqueue(t.Context(), json.RawMessage(`2`), honker.After(dead))
	require.NoError(t, err)
	target := fmt.Sprintf("/job?id=%d", waits)
	button := fmt.Sprintf("Requeue %d, and all go on", dead)
	page := get(all, target).Body.String()
	require.Contains(t, page, button)
	require.Contains(t, page, `<tspan class="name">suppliers</tspan>`)
	mails := dashboard(t, db, &ui.Options{Authorize: func(_ *http.Request, a ui.Access) error {
		if a.Queue != "mails" {
			return errors.New("only mails")
		}
		return nil
	}})
	page = get(mails, target).Body.String()
	require.Contains(t, page, "which is dead")
	require.NotContains(t, page, button)
	require.NotContains(t, page, "suppliers")
	require.Equal(t, http.StatusForbidden, post(mails, "/requeue", "id", fmt.Sprint(dead)).Code)
	readOnly := dashboard(t, db, &ui.Options{Authorize: ui.ReadOnly})
	require.NotContains(t, get(readOnly, target).Body.String(), button)

	require.Equal(t, http.StatusSeeOther, post(all, "/requeue", "id", fmt.Sprint(dead), "back", "job?id=2").Code)
	require.NotContains(t, get(all, target).Body.String(), button)
}

var valueLinks = regexp.MustCompile(`<a class="value" href="([^"]+)"[^>]*>([^<]*)</a>`)

// Each linked value in a job's arguments leads to the jobs of the queue with this value. Elements of arrays, long values,
// unusual numbers and names that a filter cannot contain are not linked.
func TestJob_ValuesLink(t *testing.T) {
	testkit.FileOnly(t)
	db, h := open(t, nil)
	ctx := context.Background()
	for _, c := range []struct {
		args  string
		links []string
	}{
		{`{"a":"x y","n":-1.5,"m":-1.50,"in":{"b":{"c":"é😀"}},"list":["x",{"d":"in a list"}],"t":true,"z":null,"e":""}`, []string{"x y", "-1.5", "é😀"}},
		{`{"dots.in":1,"q\"uote":2,"eq=":3," s":4,"":5,"ok":" trimmed ","ok2":"<b>&\"'"}`, []string{`<b>&\"'`}},
		{`{"long":"` + strings.Repeat("x", 300) + `","after":1}`, []string{"1"}},
		{`{"evil":"</pre><img src=x>","also":"javascript:alert(1)"}`, []string{"</pre><img src=x>", "javascript:alert(1)"}},
		{`["x",1]`, nil}, {`"text"`, nil}, {`17`, nil}, {`not json {"a": 1}`, nil}, {`{"n":1e400,"big":12345678901234567890}`, nil},
	} {
		name := fmt.Sprintf("q%d", len(c.args))
		_, err := db.SQL().ExecContext(ctx, "INSERT INTO _honker_live (queue, payload, state, run_at, created_at) VALUES (?, ?, 'pending', unixepoch(), unixepoch())", name, c.args)
		require.NoError(t, err)
		var id int64
		require.NoError(t, db.SQL().QueryRowContext(ctx, "SELECT max(id) FROM _honker_live").Scan(&id))
		page := get(h, fmt.Sprintf("/job?id=%d", id)).Body.String()
		require.NotContains(t, page, "<img")
		var links []string
		for _, m := range valueLinks.FindAllStringSubmatch(page, -1) {
			links = append(links, strings.Trim(strings.NewReplacer("&lt;", "<", "&gt;", ">").Replace(unescape(m[2])), `"`))
			require.Contains(t, get(h, "/"+unescape(m[1])).Body.String(), fmt.Sprintf(`<tr id="j%d"`, id), m[1])
		}
		require.Equal(t, c.links, links, c.args)
	}
}

// A timeline has the latest attempts in rows of their own, and the backoff of a job that waits for the next.
func TestJob_Timeline(t *testing.T) {
	honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
		h := dashboard(t, db, nil)
		_, err := queue(db, "mails").Enqueue(t.Context(), json.RawMessage(`1`), honker.Delay(time.Minute))
		require.NoError(t, err)
		rows := func() (labels []string) {
			page := get(h, "/job?id=1").Body.String()
			for _, m := range regexp.MustCompile(`<dt>([^<]*)</dt><dd><svg class="period".*?<span class="unseen">([^<]*)`).FindAllStringSubmatch(page, -1) {
				labels = append(labels, m[1]+": "+m[2])
			}
			return labels
		}
		time.Sleep(time.Second)
		require.Equal(t, []string{"delay: 59s left of 1m"}, rows())
		for i := range 5 {
			time.Sleep(time.Minute)
			jobs, err := queue(db, "mails").Claim(t.Context(), "w", 1)
			require.NoError(t, err)
			time.Sleep(2 * time.Second)
			require.NoError(t, jobs[0].Retry(t.Context(), 30*time.Second, fmt.Errorf("<i>error</i> %d\nsecond line", i)))
		}
		time.Sleep(time.Second)
		all := rows()
		require.Equal(t, "earlier: 2 attempts failed", all[0])
		require.Contains(t, all, "attempt 5: 2s · &lt;i&gt;error&lt;/i&gt; 4")
		require.Equal(t, "backoff: 29s left of 30s", all[len(all)-1])
		require.Len(t, all, 1+2*3+1)
	})
}

// A link opens a form of a queue's page, such as the form of the limits that keep a job from running.
func TestQueue_Form(t *testing.T) {
	db, h := open(t, nil)
	require.NoError(t, queue(db, "mails").SetLimits(t.Context(), honker.Limits{Running: 1}))
	enqueue(t, db)
	enqueue(t, db)
	_, err := queue(db, "mails").Claim(t.Context(), "w", 1)
	require.NoError(t, err)
	require.Contains(t, get(h, "/job?id=2").Body.String(), `href="queue?form=limits&amp;name=mails#limits">Change the limits</a>`)
	require.Contains(t, get(h, "/queue?form=limits&name=mails").Body.String(), `<details class="pop" id="limits" name="form" open>`)
	require.NotContains(t, get(h, "/queue?name=mails").Body.String(), " open>")
	require.Equal(t, http.StatusBadRequest, get(h, "/queue?form=no&name=mails").Code)
}

// The kinds of failures count jobs that wait for another attempt and dead jobs together, and link to either.
func TestQueue_Retries(t *testing.T) {
	db, h := open(t, nil)
	for i := range 3 {
		enqueue(t, db)
		jobs, err := queue(db, "mails").Claim(t.Context(), "w", 1)
		require.NoError(t, err)
		require.NoError(t, jobs[0].Retry(t.Context(), time.Hour, fmt.Errorf("smtp: dial tcp 10.0.0.%d:25: <connection> refused", i)))
	}
	bury(t, db, "mails", "1", "mailbox unknown")
	bury(t, db, "mails", "1", "smtp: dial tcp 10.0.0.9:25: <connection> refused")
	page := get(h, "/queue?name=mails").Body.String()
	require.Contains(t, page, "<b>80 %</b>")
	require.Contains(t, page, "<b>20 %</b>")
	require.Equal(t, 1, strings.Count(page, "<code>smtp: dial"))
	kind := regexp.MustCompile(`<a href="([^"]+)">3 wait for another attempt</a>; <a href="[^"]+">1 died</a>`).FindStringSubmatch(page)
	require.NotNil(t, kind)
	require.Equal(t, 3, strings.Count(get(h, "/"+unescape(kind[1])).Body.String(), `<tr id="j`), kind[1])
}
