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
	ActionShowJob         ActionVerb = "show_job"         // show Job: [honker.DB.Job]
	ActionExplainJob      ActionVerb = "explain_job"      // [Explain] Job
	ActionListJobs        ActionVerb = "list_jobs"        // [ListJobs] of Queue in Phase
	ActionListWorkers     ActionVerb = "list_workers"     // [Workers] of Queue
	ActionGroupDead       ActionVerb = "group_dead"       // [DeadGroups] of jobs in Queue that died within the last Since
	ActionShowLimits      ActionVerb = "show_limits"      // show Queue's limits: [honker.Queue.Limits]
	ActionListKeys        ActionVerb = "list_keys"        // list Queue's limit keys: [honker.Queue.Keys]
	ActionCheckFile       ActionVerb = "check_file"       // check the file's invariants: [honker.DB.Check]
	ActionRequeueJob      ActionVerb = "requeue_job"      // [Requeue] the dead Job
	ActionRunJobNow       ActionVerb = "run_job_now"      // [RunNow] Job
	ActionPauseQueue      ActionVerb = "pause_queue"      // [honker.Queue.Pause] Queue
	ActionCancelRunning   ActionVerb = "cancel_running"   // [Cancel] the running Job
	ActionShowRelay       ActionVerb = "show_relay"       // show the relay queue Queue of the family Name: [Relays], [EachRelayDead]
	ActionTriggerSchedule ActionVerb = "trigger_schedule" // trigger the schedule Name: [honker.Scheduler.Trigger]
	ActionResumePaused    ActionVerb = "resume_paused"    // [honker.Queue.Resume] Queue, or [honker.Queue.ResumeKey] if Key is set

	ActionSeekConsumer   ActionVerb = "seek_consumer"   // [honker.Stream.Seek] consumer Name of Topic to the end
	ActionDeleteConsumer ActionVerb = "delete_consumer" // [honker.Stream.DeleteConsumer] Name of Topic
	ActionDeleteGroup    ActionVerb = "delete_group"    // [honker.Group.Delete] group Name of Topic

	ActionShowSizes    ActionVerb = "show_sizes"    // show the [Sizes] of the database
	ActionSetRetention ActionVerb = "set_retention" // [honker.Stream.SetRetention] of Topic, or [honker.Queue.SetRetention] of Queue for the jobs in Phase
)

// Action is a suggested step for resolving a [Problem] or a [Reason]. Each program presents actions in its own
// way: the dashboard in package ui renders a link, and the honker command prints a command line.
type Action struct {
	Verb       ActionVerb
	Job        int64
	Queue, Key string
	Phase      honker.Phase  // for ActionListJobs and ActionSetRetention
	Since      time.Duration // for ActionGroupDead

	Topic, Name string // topic or pattern; and the name of a consumer, group or schedule, or the family of a relay queue
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
	case ActionCancelRunning:
		return "cancel the running job " + job
	case ActionShowRelay:
		return "look at relay " + relayName(a.Name, a.Queue)
	case ActionTriggerSchedule:
		return "trigger schedule " + strconv.Quote(a.Name)
	case ActionPauseQueue:
		return "pause queue " + queue
	case ActionResumePaused:
		if a.Key != "" {
			return fmt.Sprintf("resume key %q of queue %s", a.Key, queue)
		}
		return "resume queue " + queue
	case ActionSeekConsumer:
		return fmt.Sprintf("move consumer %q of %s to the end", a.Name, a.Topic)
	case ActionDeleteConsumer:
		return fmt.Sprintf("delete consumer %q of %s", a.Name, a.Topic)
	case ActionShowSizes:
		return "look at the sizes of tables, topics and queues"
	case ActionSetRetention:
		if a.Topic != "" {
			return "bound the events that topic " + strconv.Quote(a.Topic) + " keeps"
		}
		return fmt.Sprintf("bound the %s jobs that queue %s keeps", a.Phase, queue)
	case ActionDeleteGroup:
		return fmt.Sprintf("delete group %q of %s", a.Name, a.Topic)
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
