package main

import (
	"errors"
	"fmt"
	"strings"
)

// bar is how many times worse a ratio to raw may be than in an earlier run. It leaves room for noise, and for machines on
// which the two do not differ by the same factor.
const bar = 2

// polls is a ratio of a median latency to raw's that is never beyond the bar if it is doubled.
const polls = 2

// errWorse is the error of a run that is worse than an earlier one.
var errWorse = errors.New("honker is slower, beside raw, than in the earlier run")

// checkBars compares r with earlier runs, the results files in a list separated by commas.
func checkBars(r *Results, files string) error {
	var worse []string
	for _, path := range strings.Split(files, ",") {
		earlier, err := readResults(path)
		if err != nil {
			return err
		}
		worse = append(worse, worseThan(r, earlier)...)
	}
	if len(worse) > 0 {
		return fmt.Errorf("%w:\n  %s", errWorse, strings.Join(worse, "\n  "))
	}
	return nil
}

// worseThan returns a line for each metric of honker that is beyond the bar. FULL depends on the disk and is left out.
func worseThan(r, earlier *Results) (all []string) {
	for i := range r.Tables {
		t := &r.Tables[i]
		if t.Durability == Full {
			continue
		}
		for _, e := range earlier.of(t.Suite) {
			if e.title() == t.title() {
				all = append(all, t.worseThan(e)...)
			}
		}
	}
	return all
}

// worseThan compares rates and median latencies. Other latencies differ too much between runs. A median latency may always
// be a few times that of raw, which polls: a slow machine delays a wake-up but not a poll.
func (t *Table) worseThan(earlier *Table) (all []string) {
	for i, m := range t.Metrics {
		now, before := t.best(i), earlier.ratio(i)
		if now == 0 || before == 0 || m.Name != "rate" && m.Name != "p50" {
			continue
		}
		if m.More && now < before/bar || !m.More && now > bar*max(before, polls) {
			all = append(all, fmt.Sprintf("%s, %s, %s: × %s of raw, and × %s then", t.Suite, t.title(), m.title(), number(now), number(before)))
		}
	}
	return all
}

// ratio returns honker's ratio to raw in a metric, or 0 if there is none.
func (t *Table) ratio(metric int) float64 {
	if row := t.row(honkerName); row != nil && metric < len(row.Cells) {
		return row.Cells[metric].Ratio
	}
	return 0
}

// best returns honker's best ratio of all rounds, so that a disturbed round does not count, or 0 if there is none.
func (t *Table) best(metric int) (best float64) {
	raw := t.row(ceilingName)
	if t.ratio(metric) == 0 || raw == nil || len(raw.Cells) <= metric {
		return 0
	}
	ceiling := raw.Cells[metric].Rounds
	for i, value := range t.row(honkerName).Cells[metric].Rounds {
		if i >= len(ceiling) || ceiling[i] == 0 {
			continue
		}
		if ratio := value / ceiling[i]; best == 0 || ratio > best == t.Metrics[metric].More {
			best = ratio
		}
	}
	return best
}
