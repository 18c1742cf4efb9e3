package main

import (
	"strings"
	"testing"
)

func TestGolden_Audit(t *testing.T) {
	inFile(t, func(t *testing.T, s *session) {
		for _, args := range []string{
			"queue pause emails --until 30m --reason down", "dead requeue --queue emails --error refused --spread 10m --yes", "job run-now 8", "job cancel 8",
			"stream retention orders --age 7d", "schedule trigger nightly",
		} {
			s.run(strings.Fields(args)...)
		}
		s.each("audit")
		for _, args := range []string{
			"--verb requeue -o table", "--queue emails --columns verb,text", "--job 8 --columns text", "--actor bob", "--actor bob -o json", "--since 1h --until 1m",
			"--limit 2 -o name", "--limit 2 -o json", "--after 5 --limit 1 -o table", "--after x", "--limit 0",
		} {
			s.do(append([]string{"audit"}, strings.Fields(args)...)...)
		}
		s.matches("audit")
	})
}
