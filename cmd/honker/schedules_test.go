package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestGolden_Schedules(t *testing.T) {
	inFile(t, func(t *testing.T, s *session) {
		s.do("schedules", "-o", "table")
		s.do("schedule", "add", "poll feeds", "feeds", "@every 90s", "--missed", "skip")
		s.do("schedule", "add", "weekly", "nightly reports", "30 */5 9-17 * * 1-5", `{"kind": "weekly"}`, "--priority", "5", "--max-attempts", "3", "--expires-in", "2h", "-o", "table")
		s.each("schedules")
		s.do("schedule", "show", "weekly", "-o", "json")
		s.do("schedule", "show", "nothing")
		s.do("schedule", "add", "bad", "feeds", "* * *")
		s.do("schedule", "add", "bad", "feeds", "@daily", "{no")
		s.do("schedule", "add", "bad", "feeds", "@daily", "--missed", "some")
		s.do("schedule", "trigger", "weekly")
		s.do("schedule", "trigger", "nothing")
		s.do("schedule", "pause", "weekly", "-o", "table")
		s.do("schedule", "pause", "weekly")
		s.do("schedule", "resume", "weekly")
		s.do("schedule", "resume", "nothing")
		s.do("__complete", "schedule", "rm", "")
		s.do("__complete", "schedule", "add", "again", "")
		s.do("schedule", "rm", "weekly")
		s.do("schedule", "rm", "weekly")
		s.matches("schedules")
	})
}

func TestGolden_Next(t *testing.T) {
	inFile(t, func(t *testing.T, s *session) {
		s.do("schedule", "next", "nightly", "-o", "table")
		s.do("schedule", "next", "nothing")
		delete(s.env, "HONKER_FILE") // and the directory has no honker file
		s.do("schedule", "next", "0 9 * * 1-5", "-n", "5", "-o", "table", "-f", "no.db")
		s.each("schedule", "next", "@every 90s", "-n", "2")
		s.do("schedule", "next", "0 25 * * *")
		s.do("schedule", "next", "0 0 30 2 *")
		s.do("schedule", "next", "@fortnightly")
		s.do("schedule", "next", "@daily", "-n", "0")
		s.matches("next")
	})
}

// Schedule names may contain spaces. Specs are recognized by how they begin.
func TestSchedule_IsSpec(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]bool{
		"0 9 * * 1-5": true, "*/5 * * * *": true, "@daily": true, "@every 90s": true, "30 */5 9-17 * * 1-5": true,
		"nightly": false, "report of the last week": false, "7 days": false, "": false,
	} {
		require.Equal(t, want, isSpec(s), s)
	}
}
