package model_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
)

// listedJob is the model of a job in any table.
type listedJob struct {
	id                                          int64
	table, queue, state                         string
	priority, run, attempts, died, claim, until int // times are in seconds from now; until is 0 if there is no expiry
	n                                           int // contained in the payload and in the header
	key                                         string
	batch                                       int
	cause                                       string
}

func (j listedJob) phase() honker.Phase {
	expired, spent := j.until != 0 && j.until <= 0, j.attempts >= 3
	switch {
	case j.table == "dead":
		return honker.PhaseDead
	case j.table == "done":
		return honker.PhaseDone
	case j.state == "held":
		return honker.PhaseHeld
	case j.state == "processing" && j.claim >= 0:
		return honker.PhaseRunning
	case j.state == "processing" && (expired || spent):
		return honker.PhaseExpired
	case j.state == "processing":
		return honker.PhaseLapsed
	case expired:
		return honker.PhaseExpired
	case j.run > 0:
		return honker.PhaseScheduled
	case spent:
		return honker.PhaseExpired
	}
	return honker.PhaseReady
}

// insert stores the job.
func (j listedJob) insert(t *testing.T, db *honker.DB) {
	if testkit.OnFile() {
		j.insertFile(t, db)
	} else {
		j.insertServer(t, db)
	}
}

// texts returns the payload and the headers of the job.
func (j listedJob) texts() (payload, headers string) {
	return fmt.Sprintf(`{"n":%d,"to":{"name":"%d"}}`, j.n, j.n), fmt.Sprintf(`{"n.x":"%d"}`, j.n)
}

func (j listedJob) insertServer(t *testing.T, db *honker.DB) {
	at := func(seconds int) time.Time { return now().Add(time.Duration(seconds) * time.Second) }
	payload, headers := j.texts()
	keyed := j.key != ""
	// The columns that the tables share.
	columns := `id, queue, payload, priority, run_at, attempts, max_attempts, created_at, last_error, unique_key, key, batch, headers`
	values := []any{j.id, j.queue, payload, j.priority, at(j.run), j.attempts, 3, at(j.run), orNull(keyed || j.table != "live", j.cause),
		orNull(keyed, "u"+j.key), orNull(keyed, j.key), orNull(keyed, j.batch), orNull(keyed, headers)}
	add := func(column string, value any) { columns, values = columns+", "+column, append(values, value) }
	table := j.table
	switch j.table {
	case "live":
		table = "job"
		add("state", map[string]int{"pending": 0, "processing": 1, "held": 2}[j.state])
		add("worker", orNull(j.state == "processing", fmt.Sprint("w", j.n)))
		add("lease_until", orNull(j.state == "processing", at(j.claim)))
		add("expires_at", orNull(j.until != 0, at(j.until)))
	case "dead":
		add("died_at", at(j.died))
	case "done":
		add("worker", "w")
		add("done_at", at(j.died))
	}
	marks := "$1"
	for i := range values[1:] {
		marks += fmt.Sprint(", $", i+2)
	}
	testkit.Exec(t, db, `INSERT INTO `+table+` (`+columns+`) VALUES (`+marks+`)`, values...)
}

func (j listedJob) insertFile(t *testing.T, db *honker.DB) {
	now := time.Now().Unix()
	at := func(seconds int) int64 { return now + int64(seconds) }
	payload, headers := j.texts()
	var until any
	if j.until != 0 {
		until = at(j.until)
	}
	side := func(table, columns string, values ...any) {
		if j.key != "" {
			marks := strings.Repeat(", ?", len(values))
			testkit.Exec(t, db, `INSERT INTO `+table+` (job_id, unique_key, key, batch, headers`+columns+`) VALUES (?, ?, ?, ?, ?`+marks+`)`,
				append([]any{j.id, "u" + j.key, j.key, j.batch, headers}, values...)...)
		}
	}
	switch j.table {
	case "live":
		var worker, claim any
		if j.state == "processing" {
			worker, claim = "w"+fmt.Sprint(j.n), at(j.claim)
		}
		testkit.Exec(t, db, `INSERT INTO _honker_live (id, queue, payload, state, priority, run_at, worker_id, claim_expires_at, attempts, max_attempts, created_at, expires_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 3, ?, ?)`, j.id, j.queue, payload, j.state, j.priority, at(j.run), worker, claim, j.attempts, at(j.run), until)
		side("_honkerx_job", ", last_error", j.cause)
	case "dead":
		testkit.Exec(t, db, `INSERT INTO _honker_dead (id, queue, payload, priority, run_at, attempts, max_attempts, last_error, created_at, died_at)
VALUES (?, ?, ?, ?, ?, ?, 3, ?, ?, ?)`, j.id, j.queue, payload, j.priority, at(j.run), j.attempts, j.cause, at(j.run), at(j.died))
		side("_honkerx_dead_job", "")
	case "done":
		testkit.Exec(t, db, `INSERT INTO _honkerx_done (job_id, queue, payload, priority, run_at, worker_id, attempts, max_attempts, created_at, done_ms, last_error, unique_key, key, batch, headers)
VALUES (?, ?, ?, ?, ?, 'w', ?, 3, ?, ?, ?, ?, ?, ?, ?)`, j.id, j.queue, payload, j.priority, at(j.run), j.attempts, at(j.run), at(j.died)*1000, j.cause,
			orNull(j.key != "", "u"+j.key), orNull(j.key != "", j.key), orNull(j.key != "", j.batch), orNull(j.key != "", headers))
	}
}

func orNull(is bool, v any) any {
	if !is {
		return nil
	}
	return v
}

func drawListed(id int64) *rapid.Generator[listedJob] {
	return rapid.Custom(func(t *rapid.T) listedJob {
		j := listedJob{
			id: id, table: rapid.SampledFrom([]string{"live", "live", "live", "dead", "dead", "done"}).Draw(t, "table"),
			queue: rapid.SampledFrom([]string{"a", "b", "ä"}).Draw(t, "queue"),
			state: rapid.SampledFrom([]string{"pending", "pending", "processing", "held"}).Draw(t, "state"),
			n:     rapid.IntRange(1, 12).Draw(t, "n"), attempts: rapid.IntRange(0, 3).Draw(t, "attempts"),
			priority: rapid.IntRange(-1, 1).Draw(t, "priority"), cause: rapid.SampledFrom([]string{"no route 1", "no route 2", "out of paper"}).Draw(t, "cause"),
			key: rapid.SampledFrom([]string{"", "", "k", "l"}).Draw(t, "key"), batch: rapid.IntRange(1, 2).Draw(t, "batch"),
		}
		seconds := rapid.IntRange(-3, 3)
		j.run, j.died, j.claim = seconds.Draw(t, "run"), seconds.Draw(t, "died"), seconds.Draw(t, "claim")
		j.until = rapid.SampledFrom([]int{0, 0, -2, 2}).Draw(t, "until")
		return j
	})
}

// drawListing draws a filter and the equivalent Go predicates.
func drawListing(order admin.Order) *rapid.Generator[listing] {
	return rapid.Custom(func(t *rapid.T) listing {
		var l listing
		maybe := func(name string, set func()) {
			if rapid.IntRange(0, 9).Draw(t, name) == 0 {
				set()
				l.text += " " + name
			}
		}
		use := func(picks func(listedJob) bool) { l.picks = append(l.picks, picks) }
		second := func() (int, time.Time) {
			s := rapid.IntRange(-3, 3).Draw(t, "second")
			return s, time.Unix(time.Now().Unix()+int64(s), 0)
		}
		live := func(j listedJob) bool { return j.table == "live" }
		dead := func(j listedJob) bool { return j.table == "dead" }
		queues := rapid.SampledFrom([][]string{nil, {"a"}, {"b", "nowhere"}, {"ä", "a", "a"}}).Draw(t, "queues")
		if order == admin.ClaimOrder {
			queues = []string{"a"}
			use(func(j listedJob) bool { return live(j) && j.state == "pending" })
		}
		if l.filter.Queues = queues; queues != nil {
			use(func(j listedJob) bool { return slices.Contains(queues, j.queue) })
		}
		if order == admin.LastDiedFirst {
			use(dead)
		}
		maybe("phases", func() {
			of := []honker.Phase{honker.PhaseReady, honker.PhaseScheduled, honker.PhaseExpired}
			switch order {
			case admin.LastDiedFirst:
				of = []honker.Phase{honker.PhaseDead}
			case admin.NewestFirst, admin.OldestFirst:
				of = append(of, honker.PhaseRunning, honker.PhaseLapsed, honker.PhaseHeld, honker.PhaseDead, honker.PhaseDone)
			}
			phases := rapid.SliceOfN(rapid.SampledFrom(of), 1, 3).Draw(t, "of")
			l.filter.Phases = phases
			use(func(j listedJob) bool { return slices.Contains(phases, j.phase()) })
		})
		maybe("ids", func() {
			l.filter.IDs = rapid.SliceOfN(rapid.Int64Range(1, 50), 0, 20).Draw(t, "of")
			use(func(j listedJob) bool { return slices.Contains(l.filter.IDs, j.id) })
		})
		maybe("key", func() { l.filter.Key = "k"; use(func(j listedJob) bool { return j.key == "k" }) })
		maybe("unique", func() { l.filter.Unique = "ul"; use(func(j listedJob) bool { return j.key == "l" }) })
		maybe("batch", func() { l.filter.Batch = 2; use(func(j listedJob) bool { return j.key != "" && j.batch == 2 }) })
		maybe("header", func() {
			l.filter.Header = map[string]string{"n.x": "1"}
			use(func(j listedJob) bool { return j.key != "" && j.n == 1 })
		})
		maybe("where", func() {
			l.filter.Where = map[string]string{"n": "2", "to.name": "2"}
			use(func(j listedJob) bool { return j.n == 2 })
		})
		maybe("contains", func() { l.filter.Contains = `:1`; use(func(j listedJob) bool { return j.n == 1 || j.n > 9 }) })
		maybe("worker", func() {
			l.filter.Worker = "w3"
			use(func(j listedJob) bool { return live(j) && j.state == "processing" && j.n == 3 })
		})
		maybe("error", func() {
			l.filter.Error = "route"
			use(func(j listedJob) bool { return strings.Contains(j.cause, "route") && (!live(j) || j.key != "") })
		})
		maybe("attempts", func() { l.filter.MinAttempts = 2; use(func(j listedJob) bool { return j.attempts >= 2 }) })
		maybe("created", func() {
			s, at := second()
			l.filter.CreatedSince = at
			use(func(j listedJob) bool { return j.run >= s })
		})
		maybe("run", func() {
			s, at := second()
			l.filter.RunBefore = at
			use(func(j listedJob) bool { return j.run < s })
		})
		maybe("died", func() {
			s, at := second()
			l.filter.DiedBefore = at
			use(func(j listedJob) bool { return dead(j) && j.died < s })
		})
		maybe("died since", func() {
			s, at := second()
			l.filter.DiedSince = at
			use(func(j listedJob) bool { return dead(j) && j.died >= s })
		})
		return l
	})
}

type listing struct {
	filter admin.JobFilter
	picks  []func(listedJob) bool
	text   string
}

// want returns the ids of the jobs that a list should contain, in order.
func (l listing) want(jobs []listedJob, order admin.Order) []int64 {
	picked := slices.DeleteFunc(slices.Clone(jobs), func(j listedJob) bool {
		return slices.ContainsFunc(l.picks, func(picks func(listedJob) bool) bool { return !picks(j) })
	})
	slices.SortFunc(picked, func(a, b listedJob) int {
		switch order {
		case admin.OldestFirst:
			return cmp.Compare(a.id, b.id)
		case admin.ClaimOrder:
			return cmp.Or(cmp.Compare(b.priority, a.priority), cmp.Compare(a.run, b.run), cmp.Compare(a.id, b.id))
		case admin.LastDiedFirst:
			return cmp.Or(cmp.Compare(b.died, a.died), cmp.Compare(b.id, a.id))
		}
		return cmp.Compare(b.id, a.id)
	})
	ids := []int64{}
	for _, j := range picked {
		ids = append(ids, j.id)
	}
	return ids
}

// Lists, counts and statistics agree with filtering and sorting a slice in Go.
func TestList_Model(t *testing.T) {
	listed, met := 0, map[string]int{}
	synctest.Test(t, func(t *testing.T) { // the clock stands still
		db := honkertest.Open(t, &honker.Options{NoFileNotices: true, PollInterval: time.Hour})
		ctx := context.Background()
		clear := func() {
			for _, table := range jobTables() {
				testkit.Exec(t, db, `DELETE FROM `+table)
			}
		}
		rapid.Check(undated{t}, func(rt *rapid.T) {
			defer clear()
			var jobs []listedJob
			for id := range int64(rapid.IntRange(0, 40).Draw(rt, "jobs")) {
				j := drawListed(id+1).Draw(rt, "job")
				j.insert(t, db)
				jobs = append(jobs, j)
			}
			requireStats(t, db, jobs)
			for range 6 {
				order := rapid.SampledFrom([]admin.Order{admin.NewestFirst, admin.OldestFirst, admin.ClaimOrder, admin.LastDiedFirst}).Draw(rt, "order")
				l := drawListing(order).Draw(rt, "list")
				want := l.want(jobs, order)
				got := []int64{}
				o := &admin.PageOptions{Order: order, Limit: rapid.IntRange(1, 20).Draw(rt, "limit"), Budget: time.Duration(rapid.IntRange(1, 2).Draw(rt, "budget"))}
				for j, err := range admin.EachJob(ctx, db, l.filter, o) {
					require.NoError(t, err, l.text)
					got = append(got, j.ID)
					require.Equal(t, jobs[j.ID-1].phase(), j.Phase)
				}
				require.Equal(t, want, got, "%s in order %d of %+v", l.text, order, jobs)
				listed += len(got)
				for _, field := range strings.Fields(l.text) {
					met[field] += len(got)
				}
				if order == admin.NewestFirst || order == admin.OldestFirst {
					c, err := admin.CountJobs(ctx, db, l.filter, 0)
					require.NoError(t, err)
					require.Equal(t, honker.Count{N: int64(len(want))}, c, l.text)
				}
			}
		})
	})
	require.True(t, listed > 300 && len(met) > 10 || testing.Short(), "%d %v", listed, met)
}

// requireStats compares the statistics of all queues with the jobs.
func requireStats(t *testing.T, db *honker.DB, jobs []listedJob) {
	want := map[string]map[honker.Phase]int64{}
	for _, j := range jobs {
		if j.table == "done" {
			continue
		}
		if want[j.queue] == nil {
			want[j.queue] = map[honker.Phase]int64{}
		}
		want[j.queue][j.phase()]++
	}
	all, err := admin.Queues(context.Background(), db)
	require.NoError(t, err)
	names := []string{}
	for _, s := range all {
		names = append(names, s.Queue)
		got := map[honker.Phase]int64{}
		for phase, n := range map[honker.Phase]honker.Count{honker.PhaseReady: s.Ready, honker.PhaseScheduled: s.Scheduled, honker.PhaseRunning: s.Running,
			honker.PhaseLapsed: s.Lapsed, honker.PhaseHeld: s.Held, honker.PhaseExpired: s.Expired, honker.PhaseDead: s.Dead} {
			if n.N > 0 {
				got[phase] = n.N
			}
			require.False(t, n.More)
		}
		require.Equal(t, want[s.Queue], got, s.Queue)
	}
	require.Equal(t, slices.Sorted(maps.Keys(want)), append([]string(nil), names...))
}
