package storetest

import (
	"cmp"
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// opsList returns all IDs in a list, which it reads in parts of limit candidates. It calls between after each part.
func (d *Fixture) opsList(t *testing.T, r row.ListRequest, between func()) (ids []int64) {
	t.Helper()
	for range 10_000 {
		var p row.ListPart
		d.read(t, func(ctx context.Context, q engine.Querier) (err error) {
			p, err = d.Stores.Operators.List(ctx, q, r, start)
			if err != nil {
				return err
			}
			s, err := d.Stores.Operators.Scan(ctx, q, r, start)
			require.Equal(t, p.Places, s.Places, "a scan has the candidates of the list")
			require.Len(t, s.Jobs, len(p.Jobs))
			require.Equal(t, p.Ended, s.Ended)
			return err
		})
		require.LessOrEqual(t, len(p.Places), max(r.Limit, r.Sorted))
		for i, at := range p.Places {
			if j, selected := p.Jobs[i]; selected {
				require.Equal(t, at.ID, j.ID)
				ids = append(ids, j.ID)
			}
		}
		if p.Ended {
			return ids
		}
		if n := len(p.Places); n > 0 {
			r.After = &p.Places[n-1]
		}
		r.Plan = p.Plan
		between()
	}
	require.Fail(t, "the list does not end")
	return nil
}

// Each order lists all selected jobs exactly once and in that order, regardless of the plan and of the size of the
// parts.
func listsComplete(t *testing.T, d *Fixture) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	type kept struct {
		id, priority int64
		delay        time.Duration
	}
	var waiting []kept
	var dead, all []int64
	for i := range 40 {
		j := opsJob{priority: random.Int64N(3), delay: time.Duration(random.IntN(4)-2) * time.Minute}
		if i%4 == 0 {
			j = opsJob{priority: 9, delay: -time.Hour}
			d.opsAdd(t, j)
			id := d.opsDie(t, "mails", start.Add(time.Duration(random.IntN(3))*time.Second-time.Minute))
			dead, all = append(dead, id), append(all, id)
			continue
		}
		id := d.opsAdd(t, j)
		d.opsAdd(t, opsJob{queue: "other"})
		waiting, all = append(waiting, kept{id, j.priority, j.delay}), append(all, id)
	}
	slices.SortFunc(waiting, func(a, b kept) int {
		return cmp.Or(cmp.Compare(b.priority, a.priority), cmp.Compare(a.delay, b.delay), cmp.Compare(a.id, b.id))
	})
	var turn []int64
	for _, j := range waiting {
		turn = append(turn, j.id)
	}
	mails := row.JobSelect{Queues: []string{"mails"}}
	newest := slices.Sorted(slices.Values(all))
	slices.Reverse(newest)
	died := d.opsList(t, row.ListRequest{JobSelect: mails, Order: row.LastDiedFirst, Limit: 100, Sorted: 100}, func() {})
	require.ElementsMatch(t, dead, died)
	for _, limit := range []int{1, 3, 7, 100} {
		for _, plan := range []row.ListPlan{{}, {Looks: 9}, {Sorted: true}} { // as the database likes, walked, and sorted
			of := func(o row.Order, s row.JobSelect) []int64 {
				return d.opsList(t, row.ListRequest{JobSelect: s, Order: o, Limit: limit, Sorted: limit, Plan: plan}, func() {})
			}
			require.Equal(t, slices.Sorted(slices.Values(all)), of(row.OldestFirst, mails), "parts of %d", limit)
			require.Equal(t, newest, of(row.NewestFirst, mails), "parts of %d", limit)
			require.Equal(t, turn, of(row.ClaimOrder, row.JobSelect{Queues: mails.Queues, Phases: []row.Phase{row.PhaseReady, row.PhaseScheduled}}), "parts of %d", limit)
			require.Equal(t, died, of(row.LastDiedFirst, mails), "parts of %d", limit)
			require.Len(t, of(row.NewestFirst, row.JobSelect{Queues: mails.Queues, Phases: []row.Phase{row.PhaseDead}}), len(dead))
			ready := slices.DeleteFunc(slices.Clone(waiting), func(j kept) bool { return j.delay > 0 })
			require.Len(t, of(row.OldestFirst, row.JobSelect{Queues: mails.Queues, Phases: []row.Phase{row.PhaseReady}}), len(ready))
			require.Equal(t, dead[:1], of(row.NewestFirst, row.JobSelect{IDs: dead[:1]}))
			two := []int64{turn[3], turn[7]}
			require.Equal(t, two, of(row.ClaimOrder, row.JobSelect{Queues: mails.Queues, IDs: two, Phases: []row.Phase{row.PhaseReady, row.PhaseScheduled}}))
			require.Equal(t, died[2:3], of(row.LastDiedFirst, row.JobSelect{IDs: died[2:3]}))
		}
	}
}

// A list that is read in parts while jobs are added, claimed and removed contains no job twice, and contains
// each job that did not change.
func listsOfChanging(t *testing.T, d *Fixture) {
	var stay, leave []int64
	for range 30 {
		stay = append(stay, d.opsAdd(t, opsJob{priority: -1}))
		leave = append(leave, d.opsAdd(t, opsJob{priority: 1}))
	}
	for _, order := range []row.Order{row.NewestFirst, row.OldestFirst} {
		got := d.opsList(t, row.ListRequest{JobSelect: row.JobSelect{Queues: []string{"mails"}}, Order: order, Limit: 4, Sorted: 4}, func() {
			d.opsAdd(t, opsJob{})
			d.opsTake(t, "mails", 1, start)
			if len(leave) > 0 {
				d.mustWrite(t, func(ctx context.Context, q engine.Querier) error {
					_, err := d.Stores.Operators.CancelMany(ctx, q, row.CancelJobs{IDs: leave[:1], Running: true}, start)
					return err
				})
				leave = leave[1:]
			}
		})
		seen := make(map[int64]bool)
		for _, id := range got {
			require.False(t, seen[id], "job %d twice", id)
			seen[id] = true
		}
		for _, id := range stay {
			require.True(t, seen[id], "job %d is missing", id)
		}
	}
}

// Each field of a selection excludes the jobs that it does not match, in lists and in selections, and in each table.
func filters(t *testing.T, d *Fixture) {
	in := row.Insert{Queue: "mails", Payloads: []string{`{"n":1,"order":{"id":17,"big":9007199254740993,"name":"a%b","paid":true,"none":null,"of":["x"]}}`}, MaxAttempts: 3,
		Priority: 9, Key: "k", Headers: `{"tenant":"acme","a.b":"1"}`, Unique: &row.Unique{Keys: []string{"u"}}}
	other := row.Insert{Queue: "other", Payloads: []string{`not JSON`}, MaxAttempts: 3}
	mine := d.insert(t, start, in).Places[0].ID
	theirs := d.insert(t, start.Add(time.Hour), other).IDs[0]
	match := map[string]row.JobSelect{
		"any":            {},
		"queue":          {Queues: []string{"mails", "mails", "none"}},
		"phase":          {Phases: []row.Phase{row.PhaseReady, row.PhaseDead}},
		"id":             {IDs: []int64{mine, 999}},
		"key":            {Key: "k"},
		"unique key":     {Unique: "u"},
		"payload":        {Contains: "a%b"},
		"field":          {Where: map[string]string{`$."order"."id"`: "17", `$."n"`: "1"}},
		"large number":   {Where: map[string]string{`$."order"."big"`: "9007199254740993"}},
		"text":           {Where: map[string]string{`$."order"."name"`: "a%b"}},
		"boolean":        {Where: map[string]string{`$."order"."paid"`: "1"}},
		"header":         {Header: map[string]string{`$."tenant"`: "acme", `$."a.b"`: "1"}},
		"created since":  {CreatedSince: start},
		"created before": {CreatedBefore: start.Add(time.Second)},
		"run since":      {RunSince: start},
		"run before":     {RunBefore: start.Add(time.Second)},
	}
	miss := map[string]row.JobSelect{
		"queue":          {Queues: []string{"none"}},
		"phase":          {Phases: []row.Phase{row.PhaseScheduled, row.PhaseLapsed}},
		"no phase":       {Phases: []row.Phase{}},
		"id":             {IDs: []int64{999}},
		"no id":          {IDs: []int64{}},
		"key":            {Key: "K"},
		"unique key":     {Unique: "k"},
		"batch":          {Batch: 1},
		"worker":         {Phases: []row.Phase{row.PhaseReady}, Worker: "w"},
		"payload":        {Contains: "a_b"},
		"field":          {Where: map[string]string{`$."order"."id"`: "18"}},
		"no field":       {Where: map[string]string{`$."id"`: ""}},
		"null":           {Where: map[string]string{`$."order"."none"`: ""}},
		"field of array": {Where: map[string]string{`$."order"."of"."0"`: "x"}},
		"one of two":     {Where: map[string]string{`$."order"."id"`: "17", `$."n"`: "2"}},
		"header":         {Header: map[string]string{`$."a"`: "1"}},
		"attempts":       {Phases: []row.Phase{row.PhaseReady}, MinAttempts: 1},
		"created since":  {CreatedSince: start.Add(2 * time.Hour)},
		"created before": {CreatedBefore: start},
		"run since":      {RunSince: start.Add(2 * time.Hour)},
		"run before":     {RunBefore: start},
	}
	selected := func(s row.JobSelect, in row.Table) (ids []int64) {
		s.In = in
		d.read(t, func(ctx context.Context, q engine.Querier) error {
			all, err := d.Stores.Operators.Select(ctx, q, s, 0, 9, start)
			for _, j := range all {
				ids = append(ids, j.ID)
			}
			return err
		})
		return ids
	}
	check := func(in row.Table) {
		for name, s := range match {
			require.Contains(t, selected(s, in), mine, name)
			for _, limit := range []int{1, 9} {
				require.Contains(t, d.opsList(t, row.ListRequest{JobSelect: s, Limit: limit, Sorted: limit, Plan: row.ListPlan{Sorted: limit == 9}}, func() {}), mine, name)
			}
			if s.Queues != nil || s.Key != "" || s.Contains != "" || s.Where != nil || s.Header != nil || s.Unique != "" {
				require.NotContains(t, selected(s, in), theirs, name)
			}
		}
		for name, s := range miss {
			require.NotContains(t, d.opsList(t, row.ListRequest{JobSelect: s, Limit: 9, Sorted: 9}, func() {}), mine, name)
			if s.Phases == nil {
				require.NotContains(t, selected(s, in), mine, name)
			}
		}
	}
	check(row.Live)
	d.opsTake(t, "mails", 1, start)
	running := row.JobSelect{Phases: []row.Phase{row.PhaseRunning}, Worker: "w", MinAttempts: 1}
	require.Equal(t, []int64{mine}, d.opsList(t, row.ListRequest{JobSelect: running, Limit: 9}, func() {}))
	j, _ := d.find(t, mine)
	d.settleJobs(t, start, &row.Settlement{Claim: claimOf(&j), Queue: "mails", Outcome: row.Died, Error: "no 100% luck"})
	check(row.Dead)
	for want, s := range map[*row.JobSelect]bool{
		{Error: "100% l"}:                             true,
		{Error: "100_"}:                               false,
		{DiedSince: start}:                            true,
		{DiedSince: start.Add(time.Second)}:           false,
		{DiedBefore: start}:                           false,
		{DiedBefore: start.Add(time.Second)}:          true,
		{Error: "luck", Contains: "order", Key: "k"}:  true,
		{Error: "luck", Contains: "orders", Key: "k"}: false,
	} {
		require.Equal(t, s, slices.Contains(selected(*want, row.Dead), mine), "%+v", *want)
		deaths := row.ListRequest{JobSelect: *want, Order: row.LastDiedFirst, Limit: 9}
		deaths.Phases = []row.Phase{row.PhaseDead}
		require.Equal(t, s, slices.Contains(d.opsList(t, deaths, func() {}), mine), "%+v", *want)
	}
}

// A list by phase contains the jobs that have the phase according to row.Job.Phase, Counts counts them, and Scan selects
// them, at any time.
func phasesAgree(t *testing.T, d *Fixture) {
	began := start.Add(300 * time.Millisecond)
	add := func(in row.Insert) (id int64) {
		in.Queue, in.Payloads = "mails", []string{`1`}
		return d.insert(t, began, in).IDs[0]
	}
	awaited := add(row.Insert{MaxAttempts: 3, Delay: 90 * time.Second})
	add(row.Insert{MaxAttempts: 3, Links: &row.Links{Jobs: []int64{awaited}}})
	add(row.Insert{MaxAttempts: 3, Priority: 3})
	add(row.Insert{MaxAttempts: 1, Priority: 3})
	add(row.Insert{MaxAttempts: 3, Priority: 3, ExpiresIn: 2 * time.Minute})
	require.Len(t, d.opsTake(t, "mails", 3, began), 3)
	add(row.Insert{MaxAttempts: 3, ExpiresIn: 30 * time.Second})
	add(row.Insert{MaxAttempts: 3, Delay: 40 * time.Second, ExpiresIn: 100 * time.Second})
	seen := make(map[row.Phase]bool)
	for after := time.Duration(0); after < 150*time.Second; after += 14900 * time.Millisecond {
		for _, now := range []time.Time{began.Add(after), began.Add(time.Minute + after/1000)} { // also around the end of the claims
			d.read(t, func(ctx context.Context, q engine.Querier) error {
				all, err := d.Stores.Operators.List(ctx, q, row.ListRequest{Limit: 99}, now)
				require.NoError(t, err)
				want := make(map[row.Phase]int64)
				for _, j := range all.Jobs {
					want[j.Phase(now)]++
				}
				for _, p := range row.StatsPhases {
					r := row.ListRequest{JobSelect: row.JobSelect{Phases: []row.Phase{p}}, Limit: 99}
					for _, sorted := range []bool{false, true} {
						r.Plan.Sorted, r.Sorted = sorted, 99
						some, err := d.Stores.Operators.List(ctx, q, r, now)
						require.NoError(t, err)
						require.Len(t, some.Jobs, int(want[p]), "%s after %v", p, now.Sub(began))
						brief, err := d.Stores.Operators.Scan(ctx, q, r, now)
						require.NoError(t, err)
						require.Len(t, brief.Jobs, int(want[p]))
					}
					seen[p] = seen[p] || want[p] > 0
				}
				counts, _, err := d.Stores.Operators.Counts(ctx, q, row.JobSelect{Phases: row.StatsPhases}, 99, now)
				c := counts["mails"]
				require.Equal(t, want, without0(map[row.Phase]int64{row.PhaseReady: c.Ready.N, row.PhaseScheduled: c.Scheduled.N, row.PhaseRunning: c.Running.N,
					row.PhaseLapsed: c.Lapsed.N, row.PhaseHeld: c.Held.N, row.PhaseExpired: c.Expired.N}), "after %v", now.Sub(began))
				return err
			})
		}
	}
	for _, p := range []row.Phase{row.PhaseReady, row.PhaseScheduled, row.PhaseRunning, row.PhaseLapsed, row.PhaseHeld, row.PhaseExpired} {
		require.True(t, seen[p], p)
	}
}

// without0 returns m without the phases of no job.
func without0(m map[row.Phase]int64) map[row.Phase]int64 {
	maps.DeleteFunc(m, func(_ row.Phase, n int64) bool { return n == 0 })
	return m
}
