package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/honker-go/honker"
	runflow "github.com/honker-go/honker/flow"
)

var flowView = view[runflow.Run]{
	columns: []column[runflow.Run]{
		{"flow", func(r runflow.Run) cell { return text(r.Flow) }},
		{"id", func(r runflow.Run) cell { return text(r.ID) }},
		{"state", flowState},
		{"started_at", func(r runflow.Run) cell { return when(r.StartedAt) }},
		{"run_at", func(r runflow.Run) cell { return when(r.RunAt) }},
		{"steps", func(r runflow.Run) cell { return number(int64(r.Steps)) }},
		{"attempts", func(r runflow.Run) cell { return number(int64(r.Attempts)) }},
		{"last_error", func(r runflow.Run) cell { return long(r.LastError) }},
	},
	name:  func(r runflow.Run) string { return r.ID },
	spare: []string{"attempts", "steps", "run_at"},
}

var flowWhole = view[runflow.Run]{
	columns: append(flowView.columns[:len(flowView.columns):len(flowView.columns)],
		column[runflow.Run]{"ended_at", func(r runflow.Run) cell { return when(r.EndedAt) }},
		column[runflow.Run]{"job", func(r runflow.Run) cell { return id(r.Job) }},
		column[runflow.Run]{"parent_flow", func(r runflow.Run) cell { return dashed(r.ParentFlow) }},
		column[runflow.Run]{"parent_id", func(r runflow.Run) cell { return dashed(r.ParentID) }},
		column[runflow.Run]{"cancelled", func(r runflow.Run) cell { return truth(r.Cancelled) }},
		column[runflow.Run]{"undoing", func(r runflow.Run) cell { return dashed(r.Undoing) }},
	),
	name: flowView.name,
}

// flowState highlights failed runs.
func flowState(r runflow.Run) cell {
	c := text(string(r.State))
	if r.State == runflow.StateFailed {
		c = c.in(red)
	}
	return c
}

var stepView = view[runflow.StepInfo]{
	columns: []column[runflow.StepInfo]{
		{"name", func(s runflow.StepInfo) cell { return text(s.Name) }},
		{"kind", func(s runflow.StepInfo) cell { return text(s.Kind) }},
		{"state", func(s runflow.StepInfo) cell { return text(string(s.State)) }},
		{"began_at", func(s runflow.StepInfo) cell { return when(s.BeganAt) }},
		{"ended_at", func(s runflow.StepInfo) cell { return when(s.EndedAt) }},
		{"until", func(s runflow.StepInfo) cell { return when(s.Until) }},
		{"call_flow", func(s runflow.StepInfo) cell { return dashed(s.CallFlow) }},
		{"call_id", func(s runflow.StepInfo) cell { return dashed(s.CallID) }},
		{"value", stepValue},
	},
	name:  func(s runflow.StepInfo) string { return s.Name },
	spare: []string{"call_id", "call_flow", "until", "ended_at"},
}

// stepValue leaves a missing value out, which JSON has as null.
func stepValue(s runflow.StepInfo) cell {
	if string(s.Value) == "null" {
		return dashed("")
	}
	return long(string(s.Value))
}

func (a *app) flow() *cobra.Command {
	return parent("flow", "List, show, signal, cancel and restart the runs of flows", groupChange,
		a.flowLs(), a.flowShow(), a.flowSteps(), a.flowSignal(), a.flowCancel(), a.flowRestart())
}

func (a *app) flowLs() *cobra.Command {
	var opts runflow.ListOptions
	state := ""
	cmd := &cobra.Command{
		Use:   "ls [FLOW]",
		Short: "List the runs of a flow, or of all flows, newest first",
		Long: `ls lists runs, the newest first. A run waits for a worker, a time, a signal or a run that it has called, until run_at at the
latest; it runs; or it is done, failed or cancelled. A failed run is a dead job and goes on after honker flow restart, or honker dead requeue.`,
		Example: `  honker flow ls order --state failed
  honker flow ls --limit 20 -o json`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: a.completeRun,
	}
	flags := cmd.Flags()
	flags.StringVar(&state, "state", "", "only runs in this `state`: "+strings.Join(flowStates(), ", "))
	flags.IntVar(&opts.Limit, "limit", 100, "most `runs` to list, up to 1000")
	flags.Int64Var(&opts.Before, "before", 0, "only runs whose job is smaller than this `id`, for the next page")
	must(cmd.RegisterFlagCompletionFunc("state", cobra.FixedCompletions(flowStates(), cobra.ShellCompDirectiveNoFileComp)))
	a.prints(cmd, flowView)
	return a.does(cmd, func(ctx context.Context, args []string) error {
		if len(args) > 0 {
			opts.Flow = args[0]
		}
		opts.State = runflow.State(state)
		return a.look(ctx, func(db *honker.DB) error {
			runs, err := runflow.List(ctx, db, &opts)
			if errors.Is(err, honker.ErrInvalid) {
				return usage("", "%v", err)
			}
			if err != nil {
				return err
			}
			if err := many(a, flowView, runs, "runs"); err != nil {
				return err
			}
			if len(runs) == opts.Limit {
				a.note("there may be more: --before %d", runs[len(runs)-1].Job)
			}
			return nil
		})
	})
}

func flowStates() (names []string) {
	for _, s := range runflow.States {
		names = append(names, string(s))
	}
	return names
}

// flowRun returns a command that prints a run of a flow after f.
func (a *app) flowRun(cmd *cobra.Command, args int, f func(ctx context.Context, db *honker.DB, args []string) error) *cobra.Command {
	cmd.Args, cmd.ValidArgsFunction = cobra.ExactArgs(args), a.completeRun
	a.prints(cmd, flowWhole)
	open := a.change
	if f == nil {
		open, f = a.look, func(context.Context, *honker.DB, []string) error { return nil }
	}
	return a.does(cmd, func(ctx context.Context, args []string) error {
		return open(ctx, func(db *honker.DB) error {
			if err := f(ctx, db, args); err != nil {
				return missing(err, a.command("flow", "ls", args[0]))
			}
			d, err := runflow.Get(ctx, db, args[0], args[1])
			if err != nil {
				return missing(err, a.command("flow", "ls", args[0]))
			}
			return one(a, flowWhole, d.Run)
		})
	})
}

func (a *app) flowShow() *cobra.Command {
	return a.flowRun(&cobra.Command{Use: "show FLOW ID", Short: "Show a run"}, 2, nil)
}

func (a *app) flowSteps() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "steps FLOW ID",
		Short: "List the recorded steps of a run",
		Long: `steps lists the steps that a run has come to, in their order. A sleep, a wait or a call that waits keeps the run from going on; a
wait has the name of its signal.`,
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: a.completeRun,
	}
	a.prints(cmd, stepView)
	return a.does(cmd, func(ctx context.Context, args []string) error {
		return a.look(ctx, func(db *honker.DB) error {
			d, err := runflow.Get(ctx, db, args[0], args[1])
			if err != nil {
				return missing(err, a.command("flow", "ls", args[0]))
			}
			for i, s := range d.Timeline {
				if s.Value == nil {
					d.Timeline[i].Value = json.RawMessage("null")
				}
			}
			return many(a, stepView, d.Timeline, "steps")
		})
	})
}

func (a *app) flowSignal() *cobra.Command {
	return a.flowRun(&cobra.Command{
		Use:   "signal FLOW ID SIGNAL JSON",
		Short: "Send a signal to a run",
		Long: `signal sends a value to a run, which receives it from its wait for the signal. The first signal of each name stays. The exit code
is 1 if the run has that signal, or if it is over or never was.`,
		Example: `  honker flow signal order order-17 approved '{"by": "ann"}'`,
	}, 4, func(ctx context.Context, db *honker.DB, args []string) error {
		if !json.Valid([]byte(args[3])) {
			return usage(a.command("flow", "signal", args[0], args[1], args[2], "null"), "%q is not JSON", args[3])
		}
		err := runflow.Signal(ctx, db, args[0], args[1], args[2], json.RawMessage(args[3]))
		if errors.Is(err, runflow.ErrSignalled) {
			return &coded{code: codeNo, err: err, try: a.command("flow", "steps", args[0], args[1])}
		}
		return err
	})
}

func (a *app) flowCancel() *cobra.Command {
	return a.flowRun(&cobra.Command{
		Use:   "cancel FLOW ID",
		Short: "Cancel a run, which then undoes its steps",
		Long: `cancel asks a run to end. A run that waits goes on at once; one that runs finds out at its next step. The undo functions of the flow
run then. The exit code is 1 if there is no such run, or if it is over or failed.`,
	}, 2, func(ctx context.Context, db *honker.DB, args []string) error {
		cancelled, err := runflow.Cancel(ctx, db, args[0], args[1])
		if err == nil && !cancelled {
			err = fmt.Errorf("%w: no run %q of flow %q that is not over", honker.ErrNotFound, args[1], args[0])
		}
		return err
	})
}

func (a *app) flowRestart() *cobra.Command {
	from := ""
	cmd := &cobra.Command{
		Use:   "restart FLOW ID",
		Short: "Restart a failed or waiting run from a step",
		Long: `restart makes a run forget a step and all later steps, and run again. Earlier steps keep their results, and signals stay. A run that was
undone can restart from its first step only. The exit code is 1 if there is no such run or step, or if the run is over.`,
		Example: `  honker flow restart order order-17 --from charge`,
	}
	cmd.Flags().StringVar(&from, "from", "", "name of the `step` to restart from; default the first")
	return a.flowRun(cmd, 2, func(ctx context.Context, db *honker.DB, args []string) error {
		err := runflow.RestartFrom(ctx, db, args[0], args[1], from)
		if errors.Is(err, runflow.ErrRunning) || errors.Is(err, honker.ErrInvalid) {
			return &coded{code: codeRefused, err: err, try: a.command("flow", "steps", args[0], args[1])}
		}
		return err
	})
}

// completeRun completes the name of a flow, and then the ID of a run.
func (a *app) completeRun(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 1 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.complete(cmd, func(ctx context.Context, db *honker.DB) (offers []string, err error) {
		opts := &runflow.ListOptions{}
		if len(args) == 1 {
			opts.Flow = args[0]
		}
		runs, err := runflow.List(ctx, db, opts)
		seen := map[string]bool{}
		for _, name := range words(runs, func(r runflow.Run) string {
			if len(args) == 0 {
				return r.Flow
			}
			return r.ID
		}) {
			if !seen[name] {
				seen[name] = true
				offers = append(offers, name)
			}
		}
		return offers, err
	})
}
