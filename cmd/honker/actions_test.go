package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
)

// Each action in package admin maps to a command line of this program, quoted for a shell.
func TestActions_Commands(t *testing.T) {
	inFile(t, func(t *testing.T, s *session) {
		for want, do := range map[string]admin.Action{
			"honker job show 6": {Verb: admin.ActionShowJob, Job: 6},
			"honker job why 6":  {Verb: admin.ActionExplainJob, Job: 6},
			"honker jobs --queue 'two words' --phase lapsed":    {Verb: admin.ActionListJobs, Queue: "two words", Phase: honker.PhaseLapsed},
			"honker workers emails":                             {Verb: admin.ActionListWorkers, Queue: "emails"},
			"honker dead groups --queue emails --died-since 1h": {Verb: admin.ActionGroupDead, Queue: "emails", Since: time.Hour},
			"honker queue limits emails":                        {Verb: admin.ActionShowLimits, Queue: "emails"},
			"honker queue keys emails":                          {Verb: admin.ActionListKeys, Queue: "emails"},
			"honker relay show hooks":                           {Verb: admin.ActionShowRelay, Queue: "hooks"},
			"honker relay show hooks --family billing":          {Verb: admin.ActionShowRelay, Queue: "hooks", Name: "billing"},
			"honker check":                                      {Verb: admin.ActionCheckFile},
			"honker dead requeue 1":                             {Verb: admin.ActionRequeueJob, Job: 1},
			"honker job run-now 8":                              {Verb: admin.ActionRunJobNow, Job: 8},
			"honker queue pause emails":                         {Verb: admin.ActionPauseQueue, Queue: "emails"},
			"honker queue resume emails":                        {Verb: admin.ActionResumePaused, Queue: "emails"},
			`honker queue resume emails --key 'it'\''s me'`:     {Verb: admin.ActionResumePaused, Queue: "emails", Key: "it's me"},
			"honker sizes":                                      {Verb: admin.ActionShowSizes},
			"honker stream retention orders --age 30d":          {Verb: admin.ActionSetRetention, Topic: "orders"},
			"honker queue retention emails --dead 30d":          {Verb: admin.ActionSetRetention, Queue: "emails", Phase: honker.PhaseDead},
			"honker queue retention emails --done 1d":           {Verb: admin.ActionSetRetention, Queue: "emails", Phase: honker.PhaseDone},
			"honker doctor":                                     {Verb: "of a newer library"},
		} {
			require.Equal(t, []string{want}, (&app{}).commands([]admin.Action{do}))
			got := s.run(commandWords(do)...)
			require.NotEqual(t, codeUsage, got.code, "%s: %s", want, got.err)
		}
		require.Equal(t, []string{"honker -f 'my app.db' check"}, (&app{file: "my app.db"}).commands([]admin.Action{{Verb: admin.ActionCheckFile}}))
	})
}
