package admin

import (
	"fmt"
	"strconv"
	"time"

	"github.com/honker-go/honker"
)

// ActionVerb identifies a kind of [Action]. The values are stable.
type ActionVerb string

// Action verbs. Each comment names the function that performs the action.
const (
	ActionShowJob      ActionVerb = "show_job"      // show Job: [honker.DB.Job]
	ActionExplainJob   ActionVerb = "explain_job"   // [Explain] Job
	ActionListJobs     ActionVerb = "list_jobs"     // [ListJobs] of Queue in Phase
	ActionListWorkers  ActionVerb = "list_workers"  // [Workers] of Queue
	ActionGroupDead    ActionVerb = "group_dead"    // [DeadGroups] of jobs in Queue that died within the last Since
	ActionShowLimits   ActionVerb = "show_limits"   // show Queue's limits: [honker.Queue.Limits]
	ActionListKeys     ActionVerb = "list_keys"     // list Queue's limit keys: [honker.Queue.Keys]
	ActionCheckFile    ActionVerb = "check_file"    // check the file's invariants: [honker.DB.Check]
	ActionRequeueJob   ActionVerb = "requeue_job"   // [Requeue] the dead Job
	ActionRunJobNow    ActionVerb = "run_job_now"   // [RunNow] Job
	ActionResumePaused ActionVerb = "resume_paused" // [honker.Queue.Resume] Queue, or [honker.Queue.ResumeKey] if Key is set
)

// Action is a suggested step for resolving a [Problem] or a [Reason]. Each program presents actions in its own
// way: the dashboard in package ui renders a link, and the honker command prints a command line.
type Action struct {
	Verb       ActionVerb
	Job        int64
	Queue, Key string
	Phase      honker.Phase  // for ActionListJobs
	Since      time.Duration // for ActionGroupDead
}

// String describes the action as an instruction, such as "requeue job 7".
func (a Action) String() string {
	job, queue := strconv.FormatInt(a.Job, 10), strconv.Quote(a.Queue)
	switch a.Verb {
	case ActionShowJob:
		return "look at job " + job
	case ActionExplainJob:
		return "explain job " + job
	case ActionListJobs:
		return fmt.Sprintf("list the %s jobs of queue %s", a.Phase, queue)
	case ActionListWorkers:
		return "list the workers of queue " + queue
	case ActionGroupDead:
		return fmt.Sprintf("group the jobs of queue %s that died in the last %s", queue, FormatSpan(a.Since))
	case ActionShowLimits:
		return "look at the limits of queue " + queue
	case ActionListKeys:
		return "list the limit keys of queue " + queue
	case ActionCheckFile:
		return "check the file"
	case ActionRequeueJob:
		return "requeue job " + job
	case ActionRunJobNow:
		return "run job " + job + " now"
	case ActionResumePaused:
		if a.Key != "" {
			return fmt.Sprintf("resume key %q of queue %s", a.Key, queue)
		}
		return "resume queue " + queue
	}
	return string(a.Verb)
}

// instructions returns the String of each action.
func instructions(all []Action) (texts []string) {
	for _, a := range all {
		texts = append(texts, a.String())
	}
	return texts
}
