package main

import (
	"encoding/json"
	"os"
	"time"
)

// Results are what a run leaves behind.
type Results struct {
	Header Header
	Tables []Table
}

// Header says where, when and how.
type Header struct {
	Machine     Machine
	Began       time.Time
	Took        string
	For         string // per suite
	Rounds      int
	Scale       float64
	Seed        uint64
	Durability  string
	Contestants []About
	Skipped     []Skip
}

// About is the settings of a contestant.
type About struct{ Name, About string }

// Skip is a contestant that did not take part.
type Skip struct{ Name, Why string }

// Table is one case: what was measured, and a row per contestant.
type Table struct {
	Suite      string
	Case       string
	X          float64 `json:",omitempty"` // its place on a curve
	Curve      string  `json:",omitempty"` // the name of that curve
	Durability Durability
	Load       float64 `json:",omitempty"` // average of the machine when it began
	Metrics    []Metric
	Rows       []Row
}

// Metric is one column.
type Metric struct {
	Name, Unit string
	More       bool // is better
}

// Row is what one contestant did.
type Row struct {
	Contestant string
	Note       string `json:",omitempty"` // why there is no number, or what to know of it
	Cells      []Cell // per metric; none: there is no number
}

// Cell is one number: of each round, and what sums them up.
type Cell struct {
	Rounds           []float64
	Median, Min, Max float64
	Ratio            float64 `json:",omitempty"` // to the ceiling: the median of the rounds' ratios
}

func (t *Table) row(contestant string) *Row {
	for i := range t.Rows {
		if t.Rows[i].Contestant == contestant {
			return &t.Rows[i]
		}
	}
	return nil
}

func (r *Results) write(path string) error {
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

func readResults(path string) (*Results, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var r Results
	return &r, json.Unmarshal(text, &r)
}
