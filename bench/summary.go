package main

import (
	"fmt"
	"slices"
	"strings"
)

// summary returns a table per metric of a suite, with a row per case and a column per contestant.
// Cells have the medians and their ratios.
func (r *Results) summary(suite string) string {
	var b strings.Builder
	tables := r.of(suite)
	for _, name := range metricsOf(tables) {
		b.WriteString(summarize(tables, name))
	}
	return b.String()
}

func (r *Results) of(suite string) (tables []*Table) {
	for i := range r.Tables {
		if r.Tables[i].Suite == suite {
			tables = append(tables, &r.Tables[i])
		}
	}
	return tables
}

// metricsOf returns the names of all columns in order.
func metricsOf(tables []*Table) (names []string) {
	for _, t := range tables {
		for _, m := range t.Metrics {
			if name := m.title(); !slices.Contains(names, name) && m.Name != "samples" {
				names = append(names, name)
			}
		}
	}
	return names
}

func (m *Metric) title() string { return strings.TrimSuffix(m.Name+", "+m.Unit, ", ") }

func summarize(tables []*Table, metric string) string {
	var b strings.Builder
	var who []string
	for _, t := range tables {
		i := slices.IndexFunc(t.Metrics, func(m Metric) bool { return m.title() == metric })
		if i < 0 {
			continue
		}
		if who == nil {
			who = numbered(tables)
			fmt.Fprintf(&b, "\n| %s | %s |\n|---%s|\n", metric, strings.Join(who, " | "), strings.Repeat("|---", len(who)))
		}
		fmt.Fprintf(&b, "| %s%s |\n", t.title(), t.medians(who, i))
	}
	return b.String()
}

// numbered returns the contestants that have a number in any of the tables. All tables must have
// the same rows.
func numbered(tables []*Table) (who []string) {
	for _, row := range tables[0].Rows {
		has := func(t *Table) bool { r := t.row(row.Contestant); return r != nil && len(r.Cells) > 0 }
		if slices.ContainsFunc(tables, has) {
			who = append(who, row.Contestant)
		}
	}
	return who
}

func (t *Table) title() string {
	if t.Durability == Normal || t.Durability == Synchronous {
		return t.Case
	}
	return t.Case + ", " + string(t.Durability)
}

func (t *Table) medians(who []string, metric int) string {
	var b strings.Builder
	for _, name := range who {
		row := t.row(name)
		switch {
		case row == nil || len(row.Cells) == 0:
			b.WriteString(" | n/a")
		case row.Cells[metric].Ratio > 0 && t.Metrics[metric].More:
			fmt.Fprintf(&b, " | %s ×%s", number(row.Cells[metric].Median), number(row.Cells[metric].Ratio))
		default:
			b.WriteString(" | " + number(row.Cells[metric].Median))
		}
	}
	return b.String()
}
