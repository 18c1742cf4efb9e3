package main

import (
	"context"
	"fmt"

	"github.com/honker-go/honker/admin"
)

// question is why a job does not run, while it does not.
type question struct {
	job    int64
	reason admin.ReasonCode // that is expected
	answer string           // "" until it was the reason
}

// ask has the scenario ask for a job until it is given that reason.
func (sc *scenario) ask(job int64, reason admin.ReasonCode) {
	sc.questions = append(sc.questions, &question{job: job, reason: reason})
}

// explain asks what was not answered yet.
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

// answers says whether each question has got its answer.
func (sc *scenario) answers(name string) check {
	c := check{scenario: name, must: "each job that waits has its reason", ok: true}
	for _, q := range sc.questions {
		c.found += fmt.Sprintf("%s, ", q.reason)
		c.ok = c.ok && q.answer != ""
	}
	c.found = c.found[:len(c.found)-2]
	return c
}
