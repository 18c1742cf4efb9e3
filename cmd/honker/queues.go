package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
)

var queueView = view[honker.QueueStats]{
	columns: []column[honker.QueueStats]{
		{"queue", func(s honker.QueueStats) cell { return text(s.Queue) }},
		{"ready", func(s honker.QueueStats) cell { return count(s.Ready) }},
		{"running", func(s honker.QueueStats) cell { return count(s.Running) }},
		{"scheduled", func(s honker.QueueStats) cell { return count(s.Scheduled) }},
		{"held", func(s honker.QueueStats) cell { return count(s.Held) }},
		{"lapsed", func(s honker.QueueStats) cell { return count(s.Lapsed) }},
		{"expired", func(s honker.QueueStats) cell { return count(s.Expired) }},
		{"dead", func(s honker.QueueStats) cell { return count(s.Dead).in(deadColor(s.Dead.N)) }},
		{"oldest_ready", func(s honker.QueueStats) cell { return when(s.OldestReady).in(lateColor(s.OldestReady)) }},
		{"next_at", func(s honker.QueueStats) cell { return when(s.NextAt) }},
		{"paused", func(s honker.QueueStats) cell { return paused(s.Pause) }},
	},
	name:  func(s honker.QueueStats) string { return s.Queue },
	spare: []string{"next_at", "scheduled"},
}

// queueWhole shows a single queue.
var queueWhole = view[honker.QueueStats]{
	columns: append(queueView.columns[:len(queueView.columns):len(queueView.columns)],
		column[honker.QueueStats]{"limits", func(s honker.QueueStats) cell { return text(limitsText(s.Limits)) }}),
	name: queueView.name,
}

// paused shows when a queue was paused. People also see who paused it, why, and until when.
func paused(p *honker.Pause) cell {
	if p == nil {
		return cell{human: "-"}
	}
	c := when(p.Since)
	if p.By != "" {
		c.human += " by " + p.By
	}
	if !p.Until.IsZero() {
		c.human += ", ends " + admin.FormatAgo(time.Since(p.Until))
	}
	if p.Reason != "" {
		c.human += ": " + p.Reason
	}
	return c.in(yellow)
}

func (a *app) queues() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "queues",
		Short:   "List queues and the number of their jobs",
		GroupID: groupLook,
		Args:    cobra.NoArgs,
	}
	a.prints(cmd, queueView)
	return a.does(cmd, func(ctx context.Context, _ []string) error {
		return a.look(ctx, func(db *honker.DB) error {
			all, err := admin.Queues(ctx, db)
			if err != nil {
				return err
			}
			return a.listQueues(all)
		})
	})
}

func (a *app) listQueues(all []honker.QueueStats) error {
	return many(a, queueView, all, "queues with jobs or a pause")
}

func (a *app) queue() *cobra.Command {
	return parent("queue", "Show, explain, pause and resume a queue, with its limits, keys, traffic and retention", groupChange,
		a.queueShow(), a.queueWhy(), a.queuePause(), a.queueResume(), a.queueLimits(), a.queueKeys(), a.queueTraffic(), a.queueRetention())
}

// byName returns a queue with payloads of any type.
func byName(db *honker.DB, name string) *honker.Queue[json.RawMessage] {
	return honker.NewQueue[json.RawMessage](db, name, nil)
}

func (a *app) queueShow() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "show QUEUE",
		Short:             "Show a single queue",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeQueue,
	}
	a.prints(cmd, queueWhole)
	return a.does(cmd, func(ctx context.Context, args []string) error {
		return a.look(ctx, func(db *honker.DB) error {
			a.noteUnknown(ctx, db, args[0])
			stats, err := byName(db, args[0]).Stats(ctx)
			if err != nil {
				return err
			}
			return one(a, queueWhole, stats)
		})
	})
}

// vacant reports whether a queue has no jobs and no pause.
func vacant(s honker.QueueStats) bool {
	zero := honker.Count{}
	return s.Ready == zero && s.Running == zero && s.Scheduled == zero && s.Held == zero &&
		s.Lapsed == zero && s.Expired == zero && s.Dead == zero && s.Pause == nil
}

// steered reports the effect of pausing or resuming.
type steered struct {
	Queue   string
	Verb    string
	Changed bool      // false if the queue was already in that state
	Until   time.Time // end of the pause
	Reason  string
	Key     string // "" for the whole queue
}

var steeredView = view[steered]{
	columns: []column[steered]{
		{"queue", func(s steered) cell { return text(s.Queue) }},
		{"verb", func(s steered) cell { return text(s.Verb) }},
		{"changed", func(s steered) cell { return truth(s.Changed) }},
		{"until", func(s steered) cell { return at(s.Until) }},
		{"reason", func(s steered) cell { return text(s.Reason) }},
		{"key", func(s steered) cell { return text(s.Key) }},
	},
	name: func(s steered) string { return s.Queue },
}

func (a *app) queuePause() *cobra.Command {
	opts := &honker.PauseOptions{By: a.actor}
	cmd := &cobra.Command{
		Use:        "pause QUEUE",
		SuggestFor: []string{"stop"},
		Short:      "Stop a queue from starting jobs, in all processes",
		Long: `pause stops the queue from starting jobs, in all processes and all bindings of honker, until honker queue resume or
--until. Running jobs are not affected. The pause is stored in the file, and so outlives processes. If the queue is paused
already, the reason and the end are replaced. With --key only the jobs with this key are paused.`,
		Example: `  honker queue pause emails --until 30m --reason "the mail server is down"
  honker queue pause emails --key acme --until 2h`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeQueue,
	}
	cmd.Flags().Var(fromNow(&opts.Until), "until", "end the pause at this `time`, or after a span such as 30m; default: until resume")
	cmd.Flags().StringVar(&opts.Reason, "reason", "", "reason, stored with the pause")
	cmd.Flags().StringVar(&opts.Key, "key", "", "pause only jobs with this `key`")
	must(cmd.RegisterFlagCompletionFunc("key", a.completeKeys))
	a.prints(cmd, steeredView)
	return a.does(cmd, func(ctx context.Context, args []string) error {
		return a.change(ctx, func(db *honker.DB) error {
			a.noteUnknown(ctx, db, args[0])
			changed, err := byName(db, args[0]).Pause(ctx, opts)
			if err != nil {
				return err
			}
			return a.steered(steered{Queue: args[0], Verb: "pause", Changed: changed, Until: opts.Until, Reason: opts.Reason, Key: opts.Key})
		})
	})
}

func (a *app) queueResume() *cobra.Command {
	var key string
	cmd := &cobra.Command{
		Use:               "resume QUEUE",
		SuggestFor:        []string{"start", "unpause"},
		Short:             "End the pause of a queue, or of a key",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeQueue,
	}
	cmd.Flags().StringVar(&key, "key", "", "end the pause of this `key`")
	must(cmd.RegisterFlagCompletionFunc("key", a.completeKeys))
	a.prints(cmd, steeredView)
	return a.does(cmd, func(ctx context.Context, args []string) error {
		return a.change(ctx, func(db *honker.DB) error {
			a.noteUnknown(ctx, db, args[0])
			resume := byName(db, args[0]).Resume
			if key != "" {
				resume = func(ctx context.Context) (bool, error) { return byName(db, args[0]).ResumeKey(ctx, key) }
			}
			changed, err := resume(ctx)
			if err != nil {
				return err
			}
			if err := a.steered(steered{Queue: args[0], Verb: "resume", Changed: changed, Key: key}); err != nil {
				return err
			}
			if !changed || key != "" {
				return nil
			}
			return a.noteDead(ctx, db, args[0])
		})
	})
}

// noteDead tells how to requeue the dead jobs of a queue that runs again.
func (a *app) noteDead(ctx context.Context, db *honker.DB, queue string) error {
	stats, err := byName(db, queue).Stats(ctx)
	if err != nil || stats.Dead.N == 0 {
		return err
	}
	dead := stats.Dead.String() + " dead jobs"
	if stats.Dead.N == 1 {
		dead = "a dead job"
	}
	a.note("%s has %s; to run those of the last day again: %s", queue, dead,
		a.command("dead", "requeue", "--queue", queue, "--died-since", "1d", "--spread", "10m"))
	return nil
}

func (a *app) steered(s steered) error {
	if !a.sentences() {
		return one(a, steeredView, s)
	}
	what := s.Queue
	if s.Key != "" {
		what = "key " + s.Key + " of " + s.Queue
	}
	_, err := fmt.Fprintln(a.out, clean(what), s.sentence(a.command(commandWords(admin.Action{Verb: admin.ActionResumePaused, Queue: s.Queue, Key: s.Key})...)))
	return err
}

// sentence describes the effect. resume is the command that ends the pause.
func (s steered) sentence(resume string) string {
	end := "until " + resume
	if !s.Until.IsZero() {
		end = "until " + at(s.Until).human
	}
	switch {
	case s.Verb == "resume" && s.Changed:
		return "is resumed"
	case s.Verb == "resume":
		return "was not paused"
	case s.Changed:
		return "is paused " + end
	default:
		return "was already paused, and is now paused " + end
	}
}

// completeQueue completes a single queue name, and completeQueues completes any number of them.
func (a *app) completeQueue(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.completeQueues(cmd, args, begun)
}

func (a *app) completeQueues(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return a.complete(cmd, func(ctx context.Context, db *honker.DB) ([]string, error) { return queueNames(ctx, db) })
}
