package main

import (
	"encoding/json"
	"os"
	"time"
)

// Results are the results of a run.
type Results struct {
	Header Header
	Tables []Table
}

// Header describes a run.
type Header struct {
	Machine     Machine
	Began       time.Time
	Took        string
	For         string // duration of each suite
	Rounds      int
	Scale       float64
	Seed        uint64
	Durability  string
	Contestants []About
	Skipped     []Skip
}

// About describes the settings of a contestant.
type About struct{ Name, About string }

// Skip names a contestant that did not take part, with the reason.
type Skip struct{ Name, Why string }

// Table has the results of a case, with a row per contestant.
type Table struct {
	Suite      string
	Case       string
	X          float64 `json:",omitempty"` // position on the curve
	Curve      string  `json:",omitempty"` // name of the curve
	Durability Durability
	Load       float64 `json:",omitempty"` // load average of the machine at the start
	Metrics    []Metric
	Rows       []Row
}

// Metric describes a column.
type Metric struct {
	Name, Unit string
	More       bool // more is better
}

// Row has the results of a contestant.
type Row struct {
	Contestant string
	Note       string `json:",omitempty"` // remark, or the reason why there are no numbers
	Cells      []Cell // a cell per metric, or none
}

// Cell has the value of each round and their summary.
type Cell struct {
	Rounds           []float64
	Median, Min, Max float64
	Ratio            float64 `json:",omitempty"` // to the ceiling: median of the ratios in each round
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
