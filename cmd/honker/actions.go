package main

import (
	"strconv"

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
	case admin.ActionResumePaused:
		if do.Key != "" {
			return []string{"queue", "resume", do.Queue, "--key", do.Key}
		}
		return []string{"queue", "resume", do.Queue}
	}
	return []string{"doctor"} // unknown action from a newer library
}
