package main

import (
	"context"
	"fmt"

	"github.com/honker-go/honker/admin"
)

// question is asked repeatedly to find out why a waiting job does not run.
type question struct {
	job    int64
	reason admin.ReasonCode // expected reason
	answer string           // explanation, set once the reason is as expected
}

// ask registers the expected reason for a job.
func (sc *scenario) ask(job int64, reason admin.ReasonCode) {
	sc.questions = append(sc.questions, &question{job: job, reason: reason})
}

// explain asks the questions that are still unanswered.
func (sc *scenario) explain(ctx context.Context) error {
	for _, q := range sc.questions {
		if q.answer != "" {
			continue
		}
		ex, err := admin.Explain(ctx, sc.dbs[0], q.job)
		if err != nil {
			return err
		}
		if ex.Reasons[0].Code == q.reason {
			q.answer = ex.Text
			sc.say("   job %d: %s", q.job, ex.Text)
		}
	}
	return nil
}

// answers checks that every question was answered.
func (sc *scenario) answers(name string) check {
	c := check{scenario: name, must: "each job that waits has its reason", ok: true}
	for _, q := range sc.questions {
		c.found += fmt.Sprintf("%s, ", q.reason)
		c.ok = c.ok && q.answer != ""
	}
	c.found = c.found[:len(c.found)-2]
	return c
}
