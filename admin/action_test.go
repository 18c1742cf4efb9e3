package admin_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
)

// An action's text is an instruction that names its object.
func TestAction_String(t *testing.T) {
	t.Parallel()
	for want, a := range map[string]admin.Action{
		"look at job 7":                                        {Verb: admin.ActionShowJob, Job: 7},
		"explain job 7":                                        {Verb: admin.ActionExplainJob, Job: 7},
		`list the ready jobs of queue "q"`:                     {Verb: admin.ActionListJobs, Queue: "q", Phase: honker.PhaseReady},
		`list the workers of queue "q"`:                        {Verb: admin.ActionListWorkers, Queue: "q"},
		`look at the limits of queue "q"`:                      {Verb: admin.ActionShowLimits, Queue: "q"},
		`list the limit keys of queue "q"`:                     {Verb: admin.ActionListKeys, Queue: "q"},
		"look at relay billing/hooks":                          {Verb: admin.ActionShowRelay, Queue: "hooks", Name: "billing"},
		"check the file":                                       {Verb: admin.ActionCheckFile},
		"requeue job 7":                                        {Verb: admin.ActionRequeueJob, Job: 7},
		"run job 7 now":                                        {Verb: admin.ActionRunJobNow, Job: 7},
		`pause queue "q"`:                                      {Verb: admin.ActionPauseQueue, Queue: "q"},
		`resume queue "q"`:                                     {Verb: admin.ActionResumePaused, Queue: "q"},
		`resume key "it's \"k\"" of queue "q"`:                 {Verb: admin.ActionResumePaused, Queue: "q", Key: `it's "k"`},
		"look at the sizes of tables, topics and queues":       {Verb: admin.ActionShowSizes},
		`bound the events that topic "t" keeps`:                {Verb: admin.ActionSetRetention, Topic: "t"},
		`bound the dead jobs that queue "q" keeps`:             {Verb: admin.ActionSetRetention, Queue: "q", Phase: honker.PhaseDead},
		`group the jobs of queue "q" that died in the last 1h`: {Verb: admin.ActionGroupDead, Queue: "q", Since: time.Hour},
	} {
		require.Equal(t, want, a.String())
	}
}
