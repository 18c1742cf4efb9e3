package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
)

// check is a condition that must hold in a scenario, with the actual result.
type check struct {
	scenario, must, found string
	ok                    bool
}

// printChecks prints the table and returns an error if a check has failed.
func printChecks(w io.Writer, all []check) (err error) {
	fmt.Fprintf(w, "\n%-42s %s\n", "check", "found")
	for _, c := range all {
		verdict := "ok"
		if !c.ok {
			verdict = "FAILED"
			err = errors.Join(err, fmt.Errorf("scenario %s: %s, but: %s", c.scenario, c.must, c.found))
		}
		fmt.Fprintf(w, "%-42s %-55s %s\n", c.must, c.found, verdict)
	}
	return err
}

// doneBy counts the finished jobs of a scenario for each process.
func (s *supervisor) doneBy(ctx context.Context, scenario string) (all shares, err error) {
	rows, err := s.db.SQL().QueryContext(ctx, `SELECT process, count(*) FROM done WHERE scenario = ? GROUP BY process ORDER BY process`, scenario)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var one share
		if err := rows.Scan(&one.process, &one.jobs); err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, rows.Err()
}

// begunBy counts the jobs of a scenario that a process has started, according to its ledger. If
// scenario is empty, begunBy counts all jobs.
func (s *supervisor) begunBy(process, scenario string) (int, error) {
	text, err := os.ReadFile(ledgerOf(s.config.db, process))
	if errors.Is(err, os.ErrNotExist) { // killed before it created the file
		return 0, nil
	}
	n := 0
	for line := range bytes.Lines(text) {
		if bytes.HasPrefix(line, []byte(scenario)) {
			n++
		}
	}
	return n, err
}

func (s *supervisor) begun(scenario string) (total int, err error) {
	for _, p := range s.processes {
		n, failed := s.begunBy(p.name, scenario)
		total, err = total+n, errors.Join(err, failed)
	}
	return total, err
}

// printProcesses prints how many jobs each process started and finished, and how it ended.
func (s *supervisor) printProcesses(ctx context.Context) error {
	done := make(map[string]int)
	for _, scenario := range []string{"A", "B", "C"} {
		by, err := s.doneBy(ctx, scenario)
		if err != nil {
			return err
		}
		for _, one := range by {
			done[one.process] += one.jobs
		}
	}
	fmt.Fprintf(s.w, "\n%-8s %6s %6s\n", "process", "begun", "done")
	for _, p := range s.processes {
		begun, err := s.begunBy(p.name, "")
		if err != nil {
			return err
		}
		fmt.Fprintf(s.w, "%-8s %6d %6d  %s\n", p.name, begun, done[p.name], p.fate)
	}
	return nil
}
