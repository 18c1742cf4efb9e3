package main

import (
	"strconv"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
)

// commands returns command lines that perform the actions on the current file.
func (a *app) commands(all []admin.Action) (lines []string) {
	for _, do := range all {
		lines = append(lines, a.command(commandWords(do)...))
	}
	return lines
}

// commandWords returns the arguments of the command that performs an action, without "honker" and
// the file.
func commandWords(do admin.Action) []string {
	job := strconv.FormatInt(do.Job, 10)
	switch do.Verb {
	case admin.ActionShowJob:
		return []string{"job", "show", job}
	case admin.ActionExplainJob:
		return []string{"job", "why", job}
	case admin.ActionListJobs:
		return []string{"jobs", "--queue", do.Queue, "--phase", string(do.Phase)}
	case admin.ActionListWorkers:
		return []string{"workers", do.Queue}
	case admin.ActionGroupDead:
		return []string{"dead", "groups", "--queue", do.Queue, "--died-since", admin.FormatSpan(do.Since)}
	case admin.ActionShowLimits:
		return []string{"queue", "limits", do.Queue}
	case admin.ActionListKeys:
		return []string{"queue", "keys", do.Queue}
	case admin.ActionCheckFile:
		return []string{"check"}
	case admin.ActionRequeueJob:
		return []string{"dead", "requeue", job}
	case admin.ActionRunJobNow:
		return []string{"job", "run-now", job}
	case admin.ActionCancelRunning:
		return []string{"job", "cancel", "--running", job}
	case admin.ActionShowRelay:
		words := []string{"relay", "show", do.Queue}
		if do.Name != "" {
			words = append(words, "--family", do.Name)
		}
		return words
	case admin.ActionTriggerSchedule:
		return []string{"schedule", "trigger", do.Name}
	case admin.ActionPauseQueue:
		return []string{"queue", "pause", do.Queue}
	case admin.ActionResumePaused:
		if do.Key != "" {
			return []string{"queue", "resume", do.Queue, "--key", do.Key}
		}
		return []string{"queue", "resume", do.Queue}
	case admin.ActionSeekConsumer:
		return []string{"consumer", "seek", do.Topic, do.Name, "end"}
	case admin.ActionDeleteConsumer:
		return []string{"consumer", "rm", do.Topic, do.Name}
	case admin.ActionShowSizes:
		return []string{"sizes"}
	case admin.ActionSetRetention:
		switch {
		case do.Topic != "":
			return []string{"stream", "retention", do.Topic, "--age", "30d"}
		case do.Phase == honker.PhaseDead:
			return []string{"queue", "retention", do.Queue, "--dead", "30d"}
		}
		return []string{"queue", "retention", do.Queue, "--done", "1d"}
	case admin.ActionDeleteGroup:
		return []string{"group", "rm", do.Topic, do.Name}
	}
	return []string{"doctor"} // unknown action from a newer library
}
