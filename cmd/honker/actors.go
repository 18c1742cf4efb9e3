package main

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
)

var actorTypeView = view[admin.ActorInfo]{
	columns: []column[admin.ActorInfo]{
		{"type", func(t admin.ActorInfo) cell { return text(t.Type) }},
		{"alive", func(t admin.ActorInfo) cell { return count(honker.Count{N: int64(t.Alive)}) }},
		{"paused", func(t admin.ActorInfo) cell { return alarming(int64(t.Paused), yellow) }},
		{"waiting", func(t admin.ActorInfo) cell { return count(t.Waiting) }},
		{"running", func(t admin.ActorInfo) cell { return count(t.Running) }},
		{"dead", func(t admin.ActorInfo) cell { return count(t.Dead) }},
		{"oldest", func(t admin.ActorInfo) cell { return when(t.Oldest) }},
	},
	name: func(t admin.ActorInfo) string { return t.Type },
}

func (a *app) actors() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "actors",
		Short: "List the types of actors and the number of their jobs",
		Long: `actors lists the types of actors of package dispatch, with the number of live actors and of the jobs in all queues of the
type. oldest is the time since which a job is ready. To list the actors of a type, use honker actor show.`,
		GroupID: groupLook,
		Args:    cobra.NoArgs,
	}
	a.prints(cmd, actorTypeView)
	return a.does(cmd, func(ctx context.Context, _ []string) error {
		return a.look(ctx, func(db *honker.DB) error {
			all, err := admin.Actors(ctx, db)
			if err != nil {
				return err
			}
			return many(a, actorTypeView, all, "actors")
		})
	})
}

func (a *app) actorVerbs() *cobra.Command {
	return parent("actor", "Show, pause, resume and stop actors", groupChange, a.actorShow(), a.actorPause(), a.actorResume(), a.actorStop())
}

// liveActor is an actor with the jobs that it holds.
type liveActor struct {
	Type, Group, Instance string
	Paused, Busy          bool
	InFlight              int
	Jobs                  []int64 // up to mostActorJobs
	Hostname              string
	PID                   int
	Version               string
	Capabilities          []string
	StartedAt             time.Time
	LastHeartbeat         time.Time
	ExpiresAt             time.Time
	Key, Owner            string
}

const mostActorJobs = 100

var actorView = view[liveActor]{
	columns: []column[liveActor]{
		{"type", func(t liveActor) cell { return text(t.Type) }},
		{"group", func(t liveActor) cell { return text(t.Group) }},
		{"instance", func(t liveActor) cell { return text(t.Instance) }},
		{"paused", func(t liveActor) cell {
			if t.Paused {
				return truth(true).in(yellow)
			}
			return truth(false)
		}},
		{"busy", func(t liveActor) cell { return truth(t.Busy) }},
		{"in_flight", func(t liveActor) cell { return number(int64(t.InFlight)) }},
		{"jobs", func(t liveActor) cell { return dashed(idList(t.Jobs)) }},
		{"hostname", func(t liveActor) cell { return dashed(t.Hostname) }},
		{"pid", func(t liveActor) cell { return orDash(int64(t.PID)) }},
		{"version", func(t liveActor) cell { return dashed(t.Version) }},
		{"started_at", func(t liveActor) cell { return when(t.StartedAt) }},
		{"last_heartbeat", func(t liveActor) cell { return when(t.LastHeartbeat) }},
	},
	name: func(t liveActor) string { return t.Key },
}

func (a *app) actorShow() *cobra.Command {
	var prefix string
	cmd := &cobra.Command{
		Use:   "show TYPE [GROUP [INSTANCE]]",
		Short: "List live actors with the jobs that they hold",
		Long: `show lists the live actors of a type, of a group, or a single actor. paused, busy and in_flight are from the last heartbeat,
a few seconds ago. jobs are the jobs that the actor holds now, up to 100. The exit code is 1 if no such actor is alive.`,
	}
	a.prints(cmd, actorView)
	return a.onActors(cmd, &prefix, func(ctx context.Context, t admin.ActorTarget) error {
		return a.look(ctx, func(db *honker.DB) error {
			all, err := liveActors(ctx, db, t)
			if err != nil {
				return err
			}
			if len(all) == 0 {
				return a.noActor(t)
			}
			shown := make([]liveActor, len(all))
			for i, p := range all {
				if shown[i], err = actorOf(ctx, db, p); err != nil {
					return err
				}
			}
			return many(a, actorView, shown, "")
		})
	})
}

func (a *app) noActor(t admin.ActorTarget) error {
	return &coded{code: codeNo, err: errors.New("no actor of " + t.String() + " is alive"), try: a.command("actors")}
}

// liveActors returns the live actors that t selects.
func liveActors(ctx context.Context, db *honker.DB, t admin.ActorTarget) ([]admin.PresenceInfo, error) {
	all, err := admin.Presences(ctx, db)
	return slices.DeleteFunc(all, func(p admin.PresenceInfo) bool { return !t.Selects(p) }), err
}

// actorOf adds the jobs that the actor holds.
func actorOf(ctx context.Context, db *honker.DB, p admin.PresenceInfo) (liveActor, error) {
	out := liveActor{
		Type: p.Type, Group: p.Group, Instance: p.Instance, Paused: p.Paused, Busy: p.Busy, InFlight: p.InFlight, Jobs: []int64{},
		Hostname: p.Hostname, PID: p.PID, Version: p.Version, Capabilities: p.Capabilities, StartedAt: p.StartedAt,
		LastHeartbeat: p.LastHeartbeat, ExpiresAt: p.ExpiresAt, Key: p.Key, Owner: p.Owner,
	}
	workers, err := admin.Workers(ctx, db)
	if err != nil {
		return out, err
	}
	var ids []string // a worker is listed once for each of its queues
	for _, w := range workers {
		if p.Runs(w) && w.Running > 0 && !slices.Contains(ids, w.ID) {
			ids = append(ids, w.ID)
		}
	}
	for _, id := range ids {
		for job, err := range admin.EachJob(ctx, db, admin.JobFilter{Worker: id}, nil) {
			if err != nil {
				return out, err
			}
			if len(out.Jobs) == mostActorJobs {
				return out, nil
			}
			out.Jobs = append(out.Jobs, job.ID)
		}
	}
	slices.Sort(out.Jobs)
	return out, nil
}

func (a *app) actorPause() *cobra.Command {
	return a.commandsActors(&cobra.Command{
		Use:   "pause TYPE [GROUP [INSTANCE]]",
		Short: "Keep live actors from claiming jobs",
		Long: `pause keeps the live actors of a type, of a group, or a single actor, from claiming jobs, until they are resumed or started
again. Running tasks continue. It asks before it pauses more than one. The exit code is 1 if no such actor is alive.`,
		Example: `  honker actor pause osis
  honker actor pause osis default 2 --dry-run`,
	}, verb{name: "pause", done: "paused", what: "actor"}, admin.PauseActors)
}

func (a *app) actorResume() *cobra.Command {
	return a.commandsActors(&cobra.Command{
		Use:   "resume TYPE [GROUP [INSTANCE]]",
		Short: "End the pause of live actors",
		Long: `resume lets the live actors of a type, of a group, or a single actor, claim jobs again. It asks before it resumes more
than one. The exit code is 1 if no such actor is alive.`,
	}, verb{name: "resume", done: "resumed", what: "actor"}, admin.ResumeActors)
}

func (a *app) actorStop() *cobra.Command {
	return a.commandsActors(&cobra.Command{
		Use:        "stop TYPE [GROUP [INSTANCE]]",
		SuggestFor: []string{"kill", "end", "quit"},
		Short:      "Stop live actors when their tasks have ended",
		Long: `stop ends the live actors of a type, of a group, or a single actor. They claim no more jobs, finish their tasks and return
from Run. A supervisor may start them again. stop asks before it stops more than one, and does not wait until they have
stopped. The exit code is 1 if no such actor is alive.`,
	}, verb{name: "stop", done: "stopped", what: "actor"}, admin.StopActors)
}

// commandsActors makes cmd send a command to the actors named by its arguments.
func (a *app) commandsActors(cmd *cobra.Command, v verb, do func(context.Context, *honker.DB, admin.ActorTarget) (int, error)) *cobra.Command {
	var c changing
	var prefix string
	c.addTo(cmd)
	a.prints(cmd, outcomeView)
	return a.onActors(cmd, &prefix, func(ctx context.Context, t admin.ActorTarget) error {
		return a.change(ctx, func(db *honker.DB) error {
			all, err := liveActors(ctx, db, t)
			if err != nil {
				return err
			}
			if len(all) == 0 {
				return a.noActor(t)
			}
			v.do = func(ctx context.Context, dryRun bool) (*admin.Report, error) {
				r := &admin.Report{Matched: int64(len(all))}
				if dryRun {
					return r, nil
				}
				told, err := do(ctx, db, t)
				r.Changed = int64(told)
				return r, err
			}
			return a.apply(ctx, v, c)
		})
	})
}

// onActors makes cmd call do with the target named by its arguments.
func (a *app) onActors(cmd *cobra.Command, prefix *string, do func(ctx context.Context, t admin.ActorTarget) error) *cobra.Command {
	cmd.Args = cobra.RangeArgs(1, 3)
	cmd.ValidArgsFunction = a.completeActor
	cmd.Flags().StringVar(prefix, "prefix", "", "`prefix` of the keys of package dispatch; default hero:")
	return a.does(cmd, func(ctx context.Context, args []string) error {
		parts := append(slices.Clone(args), "", "")
		return do(ctx, admin.ActorTarget{Prefix: *prefix, Type: parts[0], Group: parts[1], Instance: parts[2]})
	})
}

// completeActor completes the type, the group and the instance of a live actor.
func (a *app) completeActor(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 2 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.complete(cmd, func(ctx context.Context, db *honker.DB) ([]string, error) {
		all, err := admin.Presences(ctx, db)
		var offers []string
		for _, p := range all {
			parts := []string{p.Type, p.Group, p.Instance}
			if word := parts[len(args)]; slices.Equal(parts[:len(args)], args) && word != "" && !slices.Contains(offers, word) {
				offers = append(offers, word)
			}
		}
		return words(offers, func(s string) string { return s }), err
	})
}
