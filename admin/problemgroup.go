package admin

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/honker-go/honker"
)

// ProblemGroup combines the problems of a code.
type ProblemGroup struct {
	Code     ProblemCode
	Severity Severity
	Text     string       // Text of the only problem, or a sentence such as "318 queues have ready jobs and no worker"
	Since    time.Time    // earliest Since of the problems; zero if unknown
	N        honker.Count // sum of the N of the problems
	Problems []Problem    // largest first; never empty
}

// GroupProblems groups problems by code, the most severe first. The problems of a group are ordered by
// size, then by age. The result is empty if there are no problems. GroupProblems does not change all.
func GroupProblems(all []Problem) []ProblemGroup {
	groups := []ProblemGroup{}
	for _, p := range sorted(all) {
		last := len(groups) - 1
		if last < 0 || groups[last].Code != p.Code {
			groups = append(groups, ProblemGroup{Code: p.Code, Severity: p.Severity})
			last++
		}
		g := &groups[last]
		g.Problems = append(g.Problems, p)
		g.N.N += p.N.N
		g.N.More = g.N.More || p.N.More
		if g.Since.IsZero() || !p.Since.IsZero() && p.Since.Before(g.Since) {
			g.Since = p.Since
		}
	}
	for i := range groups {
		groups[i].Text = textOf(groups[i])
	}
	return groups
}

// sorted returns the problems by severity and code. Within a code, larger and then older problems come first.
func sorted(all []Problem) []Problem {
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b Problem) int {
		return cmp.Or(
			cmp.Compare(slices.Index(problemOrder, a.Code), slices.Index(problemOrder, b.Code)),
			cmp.Compare(b.N.N, a.N.N),
			older(a.Since, b.Since),
		)
	})
	return all
}

// older orders times, with unknown times last.
func older(a, b time.Time) int {
	if a.IsZero() != b.IsZero() {
		return b.Compare(a)
	}
	return a.Compare(b)
}

// textOf describes the problems of a group in a sentence.
func textOf(g ProblemGroup) string {
	n := len(g.Problems)
	if n == 1 {
		return g.Problems[0].Text
	}
	if format := problemPlurals[g.Code]; format != "" {
		return fmt.Sprintf(format, n)
	}
	return fmt.Sprintf("%d problems of code %s", n, g.Code)
}

// problemPlurals holds the sentences about several problems. Codes of problems that occur only once are
// absent.
var problemPlurals = map[ProblemCode]string{
	ProblemFailing:        "%d queues fail most of their attempts",
	ProblemRelayStuck:     "%d partitions of relay queues do not get past a message",
	ProblemRelayDead:      "%d relay queues have messages that died in the last hour",
	ProblemNoWorker:       "%d queues have ready jobs and no worker",
	ProblemWaitsForDead:   "%d queues have jobs that wait for dead jobs",
	ProblemLapsed:         "%d queues have lapsed jobs that no worker has taken over",
	ProblemLate:           "%d queues have workers that do not keep up",
	ProblemStuck:          "%d queues have jobs that run much longer than usual",
	ProblemScheduleMissed: "%d schedules have skipped their last times",
	ProblemOverdue:        "%d schedules are overdue",
	ProblemBlocked:        "%d sessions keep others waiting for their locks",
	ProblemHeld:           "%d keys have room and held jobs; this is a bug in honker, please report it",
	ProblemDead:           "%d queues have jobs that died in the last hour",
	ProblemBehind:         "%d consumers do not read their events",
	ProblemSlow:           "%d consumers are an hour behind and do not catch up",
	ProblemPinned:         "%d consumers keep events beyond the retention of their topics",
	ProblemSnapshot:       "%d old snapshots keep deleted jobs from being removed",
	ProblemStandby:        "%d standbys have fallen behind",
	ProblemPaused:         "%d queues or keys were paused more than a day ago, without an end",
}
