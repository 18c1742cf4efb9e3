package main

import (
	"fmt"
	"strings"
)

// crowdTarget is the case used by most of the targets for a crowd.
const crowdTarget = "25 idle, 5 ms pauses"

// Target is a claim about the performance of honker, checked against the tables of a run.
type Target struct {
	Says  string
	judge func(r *Results) (told string, met bool)
}

var targets = []Target{
	{"burn-down at least 15 × River tuned, each with the workers that suit it", times("work", "as many workers as suit", 15, "River tuned")},
	{"burn-down at least 8 × backlite, each with the workers that suit it", times("work", "as many workers as suit", 8, "backlite")},
	{"single enqueue by 64 goroutines at least 3 × any peer", times("enqueue", "64 goroutines", 3)},
	{"lowest p50 of all peers from enqueue to start", lowest("wake", "", 0)},
	{"lowest p99 of all peers from enqueue to start", lowest("wake", "", 1)},
	{"claim and ack within 20 % of those in a file without other jobs", within("flat", "", 1, 1.2)},
	{"no peer needs less CPU when idle", lowest("idle", "", 0)},
	{"no SQLITE_BUSY for anybody", never("contention", 4)},
	{"beside 25 idle processes at least 95 % of the commits alone", reach("crowd", crowdTarget, 0, 0.95)},
	{"beside 25 idle processes a writer's p50 at most 1.2 × that alone", within("crowd", crowdTarget, 2, 1.2)},
	{"25 idle processes together below 15 % of a core", within("crowd", crowdTarget, 5, 15)},
	{"a worker beside 25 idle processes starts within 0.74 ms (p50)", within("crowd", crowdTarget, 6, 0.74)},
	{"a process with 5,000 queues below 5 % of a core beside unrelated commits", within("crowd", "5,000 queues", 0, 5)},
	{"an event costs 1,000 subscribers with a key each at most 2 × the CPU of one", within("crowd", "1,000 subscribers", 0, 2)},
	{"a paced foreign writer's p50 at most 1 ms beside honker", within("neighbours", "a paced writer", 0, 1)},
	{"its p90 at most 10 ms", within("neighbours", "a paced writer", 1, 10)},
	{"its p99 at most 60 ms", within("neighbours", "a paced writer", 2, 60)},
	{"more than 150 of its commits a second", reach("neighbours", "a paced writer", 4, 150)},
	{"enqueues by 1 goroutine beside it at least 70 % of alone", reach("neighbours", "a paced writer beside enqueues by 1 ", 6, 0.7)},
	{"enqueues by 64 goroutines beside it at least 85 % of alone", reach("neighbours", "a paced writer beside enqueues by 64 ", 6, 0.85)},
	{"enqueues beside a process that only waits or reads at least 98 % of alone", reach("neighbours", "beside a process that", 0, 0.98)},
	{"of two processes without pauses the slower has at least 40 %", reach("neighbours", "two processes", 0, 40)},
	{"and waits at most 50 ms at its p99", within("neighbours", "two processes", 1, 50)},
	{"SendTx beside an order at least 0.85 × raw", beside("relay", "SendTx", 0.85)},
	{"a relay's HandleBatch of one partition at least 60,000 messages/s, in batches of 10", reach("relay", "HandleBatch, batches of 10", 0, 60_000)},
	{"the same in batches of 100", reach("relay", "HandleBatch, batches of 100", 0, 60_000)},
	{"a relay's Handle of 16 partitions at least 25,000 messages/s", reach("relay", "16 partitions, Handle,", 0, 25_000)},
	{"a relay's HandleTx of 16 partitions at least 0.7 × raw", beside("relay", "HandleTx", 0.7)},
	{"commit to handler in the same process: p50 at most 0.5 ms", within("relay", "handler, same process", 0, 0.5)},
	{"commit to handler in another process: p50 at most 1 ms", within("relay", "handler, two processes", 0, 1)},
	{"beside a partition with 90 % of the load the others' p99 at most 2 × that alone", within("relay", "90 % of the load", 0, 2)},
	{"take and progress among a million messages within 20 % of those in an empty file", within("relay", "take and progress", 0, 1.2)},
	{"a million messages beside kills: none lost, all in order, or there is no number", reach("relay", "a kill each second", 1, 1)},
	{"and the memory of a process that stays grows by less than 40 MiB", within("relay", "a kill each second", 3, 40)},
	{"300 files in a pool of 16 at least 0.9 × one file with 16 workers", reach("pool", "a handler takes", 0, 0.9)},
	{"a job of a quiet file beside one with a thousand jobs of 5 ms starts within 10 ms (p99)", within("pool", "a quiet file", 1, 10)},
	{"a claim of 3 queues by priority at most 1.5 × that of one queue", within("lanes", "3 lanes", 0, 1.5)},
	{"of 3 that take turns", within("lanes", "3 lanes", 1, 1.5)},
	{"of 3 in strict order", within("lanes", "3 lanes", 2, 1.5)},
	{"a claim of 9 queues by priority at most 2 × that of one queue", within("lanes", "9 lanes", 0, 2)},
	{"of 9 that take turns", within("lanes", "9 lanes", 1, 3)},
	{"of 9 in strict order", within("lanes", "9 lanes", 2, 3)},
	{"a Workers with one queue at most 1.05 × a Work", within("lanes", "lanes of", 4, 1.05)},
	{"50 idle actors below 0.3 % of a core", within("dispatch", "idle actors", 0, 0.3)},
	{"flow: steps of 1 run at least 4 × DBOS", times("flow", "plain steps, 1 run", 4, dbosName)},
	{"of 64 runs at once 8 ×", times("flow", "plain steps, 64 runs", 8, dbosName)},
	{"at most 2 statements for each", within("flow", "plain steps", 1, 2)},
	{"flow: transactional steps of 1 run at least 2.5 × DBOS", times("flow", "transactional steps, 1 run", 2.5, dbosName)},
	{"of 64 runs at once 3 ×", times("flow", "transactional steps, 64 runs", 3, dbosName)},
	{"flow: a run starts within 0.6 ms (p50)", within("flow", "a start", 0, 0.6)},
	{"flow: it goes on within 2 ms of a signal (p50)", within("flow", "a start", 2, 2)},
	{"and within 20 ms at most", within("flow", "a start", 4, 20)},
	{"flow: another process takes a run over a second after the lease at the latest", within("flow", "takeover", 0, flowLease.Seconds()+1)},
	{"flow: 1,000 waiting runs at most 0.1 % of a core", within("flow", "waiting runs", 0, 0.1)},
	{"and no statements but the looks at a quiet file, one in four seconds", within("flow", "waiting runs", 1, 0.3)},
	{"PostgreSQL: enqueues by 1 goroutine at least 1.5 × River", times("postgres", "enqueue, 1 goroutine", 1.5, "River tuned")},
	{"by 8 goroutines 2.5 ×", times("postgres", "enqueue, 8 goroutines", 2.5, "River tuned")},
	{"by 64 goroutines 8 ×", times("postgres", "enqueue, 64 goroutines", 8, "River tuned")},
	{"EnqueueMany of 1,000 at least 2.5 × InsertManyFast", times("postgres", "enqueue, 1,000", 2.5, "River tuned")},
	{"PostgreSQL: work by 8 workers at least 15 × River", times("postgres", "work, 8 workers", 15, "River tuned")},
	{"by 64 workers 5 ×", times("postgres", "work, 64 workers", 5, "River tuned")},
	{"by 500 workers 4 ×", times("postgres", "work, 500 workers", 4, "River tuned")},
	{"PostgreSQL: a job starts within 0.1 ms of its commit in the same process (p99)", within("postgres", "start, same", 1, 0.1)},
	{"and in another process no later than River's (p50)", lowest("postgres", "start, two", 0)},
	{"PostgreSQL: work beside a million dead tuples takes at most 1.5 × the time", within("postgres", "dead tuples", 0, 1.5)},
	{"PostgreSQL: an idle process sends at most 0.5 statements per second", within("postgres", "idle, 1 queue", 0, 0.5)},
}

func (r *Results) targetsMarkdown() string {
	var b strings.Builder
	b.WriteString("\n## Targets\n\n| target | measured | met |\n|---|---|---|\n")
	for _, t := range targets {
		told, met := t.judge(r)
		fmt.Fprintf(&b, "| %s | %s | %s |\n", t.Says, told, map[bool]string{true: "yes", false: "no"}[met])
	}
	return b.String()
}

// median returns the median of a contestant, or false if it has none.
func (t *Table) median(contestant string, metric int) (float64, bool) {
	if r := t.row(contestant); r != nil && len(r.Cells) > metric {
		return r.Cells[metric].Median, true
	}
	return 0, false
}

// beside calls f with the medians of honker and each peer for all matching tables.
func (r *Results) beside(suite, part string, metric int, f func(t *Table, peer string, ours, theirs float64)) {
	for i := range r.Tables {
		t := &r.Tables[i]
		ours, ok := t.median(honkerName, metric)
		if t.Suite != suite || !strings.Contains(t.Case, part) || !ok {
			continue
		}
		for _, row := range t.Rows {
			if theirs, ok := t.median(row.Contestant, metric); ok && row.Contestant != honkerName && row.Contestant != ceilingName && !isServer(row.Contestant) {
				f(t, row.Contestant, ours, theirs)
			}
		}
	}
}

// times requires honker to reach want times the value of the peers, or of the named peers, in every
// matching table.
func times(suite, part string, want float64, peers ...string) func(*Results) (string, bool) {
	return func(r *Results) (string, bool) {
		told, least := "not measured", 0.0
		r.beside(suite, part, 0, func(t *Table, peer string, ours, theirs float64) {
			if len(peers) > 0 && peer != peers[0] {
				return
			}
			if factor := ours / theirs; told == "not measured" || factor < least {
				least = factor
				told = fmt.Sprintf("%s × %s (%s)", number(factor), peer, t.Durability)
			}
		})
		return told, least >= want
	}
}

// lowest requires that no peer has a lower value in any matching table.
func lowest(suite, part string, metric int) func(*Results) (string, bool) {
	return func(r *Results) (string, bool) {
		var lost []string
		seen := false
		r.beside(suite, part, metric, func(t *Table, peer string, ours, theirs float64) {
			seen = true
			if theirs < ours {
				lost = append(lost, fmt.Sprintf("%s: %s, %s has %s", t.Case, number(ours), peer, number(theirs)))
			}
		})
		if len(lost) == 0 {
			return map[bool]string{true: "in every table", false: "not measured"}[seen], seen
		}
		return strings.Join(lost, "; "), false
	}
}

// within requires honker's value to be at most bound in all tables whose case name contains part.
func within(suite, part string, metric int, bound float64) func(*Results) (string, bool) {
	return func(r *Results) (string, bool) {
		told, worst := "not measured", -1.0
		r.ours(suite, part, metric, func(t *Table, v float64) {
			if v > worst {
				worst, told = v, fmt.Sprintf("%s %s at most (%s)", number(v), t.Metrics[metric].Unit, t.Case)
			}
		})
		return told, worst >= 0 && worst <= bound
	}
}

// reach requires honker's value to be at least bound in all such tables.
func reach(suite, part string, metric int, bound float64) func(*Results) (string, bool) {
	return func(r *Results) (string, bool) {
		told, worst := "not measured", -1.0
		r.ours(suite, part, metric, func(t *Table, v float64) {
			if worst < 0 || v < worst {
				worst, told = v, fmt.Sprintf("%s %s at least (%s)", number(v), t.Metrics[metric].Unit, t.Case)
			}
		})
		return told, worst >= bound
	}
}

// beside requires honker's first value to be at least bound times that of the ceiling in all such
// tables.
func beside(suite, part string, bound float64) func(*Results) (string, bool) {
	return func(r *Results) (string, bool) {
		told, worst := "not measured", -1.0
		r.ours(suite, part, 0, func(t *Table, _ float64) {
			if ratio := t.row(honkerName).Cells[0].Ratio; ratio > 0 && (worst < 0 || ratio < worst) {
				worst, told = ratio, fmt.Sprintf("%s × raw at least (%s, %s)", number(ratio), t.Case, t.Durability)
			}
		})
		return told, worst >= bound
	}
}

// ours calls f with honker's median for all matching tables.
func (r *Results) ours(suite, part string, metric int, f func(t *Table, v float64)) {
	for i := range r.Tables {
		t := &r.Tables[i]
		if v, ok := t.median(honkerName, metric); ok && t.Suite == suite && strings.Contains(t.Case, part) {
			f(t, v)
		}
	}
}

// never requires a value of 0 in every round of honker.
func never(suite string, metric int) func(*Results) (string, bool) {
	return func(r *Results) (string, bool) {
		tables, most := 0, 0.0
		for i := range r.Tables {
			row := r.Tables[i].row(honkerName)
			if r.Tables[i].Suite == suite && row != nil && len(row.Cells) > metric {
				tables++
				most = max(most, row.Cells[metric].Max)
			}
		}
		if tables == 0 {
			return "not measured", false
		}
		return number(most) + " at most", most == 0
	}
}
