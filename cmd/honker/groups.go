package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
)

var groupRowView = view[admin.GroupState]{
	columns: []column[admin.GroupState]{
		{"topic", func(g admin.GroupState) cell { return text(g.Topic) }},
		{"name", func(g admin.GroupState) cell { return text(g.Name) }},
		{"cursor", func(g admin.GroupState) cell { return id(g.Cursor) }},
		{"lag", func(g admin.GroupState) cell { return lagCell(g.Lag, g.LagMax) }},
		{"behind", func(g admin.GroupState) cell { return waiting(g.Behind) }},
		{"held", func(g admin.GroupState) cell { return bound(g.Leased) }},
		{"returned", func(g admin.GroupState) cell { return bound(g.Reclaim) }},
		{"dead", func(g admin.GroupState) cell { return bound(g.Dead).in(deadColor(g.Dead)) }},
	},
	name: func(g admin.GroupState) string { return g.Name },
}

func (a *app) groups() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "groups [TOPIC]",
		Short:             "List groups of consumers, their lag and their deliveries",
		GroupID:           groupLook,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: a.completeGroup,
	}
	a.prints(cmd, groupRowView)
	return a.does(cmd, func(ctx context.Context, args []string) error {
		return a.look(ctx, func(db *honker.DB) error {
			all, err := admin.Groups(ctx, db)
			if err != nil {
				return err
			}
			all = slices.DeleteFunc(all, func(g admin.GroupState) bool { return len(args) > 0 && g.Topic != args[0] })
			return many(a, groupRowView, all, "groups")
		})
	})
}

func (a *app) group() *cobra.Command {
	return parent("group", "Show and remove a group, and handle its dead events", groupChange,
		a.groupShow(), a.groupDead(), a.groupRedeliver(), a.groupDiscard(), a.groupRm())
}

var groupWhole = view[honker.GroupInfo]{
	columns: []column[honker.GroupInfo]{
		{"topic", func(g honker.GroupInfo) cell { return text(g.Topic) }},
		{"name", func(g honker.GroupInfo) cell { return text(g.Name) }},
		{"cursor", func(g honker.GroupInfo) cell { return id(g.Cursor) }},
		{"low_water", func(g honker.GroupInfo) cell { return id(g.LowWater) }},
		{"lag", func(g honker.GroupInfo) cell { return bound(g.Lag) }},
		{"leased", func(g honker.GroupInfo) cell { return bound(g.Leased) }},
		{"reclaim", func(g honker.GroupInfo) cell { return bound(g.Reclaim) }},
		{"dead", func(g honker.GroupInfo) cell { return bound(g.Dead).in(deadColor(g.Dead)) }},
		{"members", func(g honker.GroupInfo) cell { return dashed(strings.Join(g.Members, ", ")) }},
	},
	name: func(g honker.GroupInfo) string { return g.Name },
}

func (a *app) groupShow() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show TOPIC GROUP",
		Short: "Show the lag and the members of a group",
		Long: `show shows the position, the lag and the members of a group. low_water is the first event that is not handled. leased counts the
events that members hold, reclaim the events that wait to be delivered again, and dead the events that failed for good. The list of
groups calls the first two held and returned.`,
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: a.completeGroup,
	}
	a.prints(cmd, groupWhole)
	return a.does(cmd, func(ctx context.Context, args []string) error {
		return a.look(ctx, func(db *honker.DB) error {
			info, err := onTopic(db, args[0]).Group(args[1], nil).Info(ctx)
			if err != nil {
				return missing(err, a.command("groups"))
			}
			return one(a, groupWhole, info)
		})
	})
}

// deadEvent is a dead event of a group, in its stored form.
type deadEvent struct {
	Offset    int64
	Topic     string
	Key       string
	Attempts  int
	LastError string
	DiedAt    time.Time
	CreatedAt time.Time
	Payload   json.RawMessage
}

var deadEventView = view[deadEvent]{
	columns: []column[deadEvent]{
		{"offset", func(e deadEvent) cell { return id(e.Offset) }},
		{"key", func(e deadEvent) cell { return text(e.Key) }},
		{"attempts", func(e deadEvent) cell { return number(int64(e.Attempts)) }},
		{"died_at", func(e deadEvent) cell { return when(e.DiedAt) }},
		{"last_error", func(e deadEvent) cell { return long(e.LastError) }},
		{"payload", func(e deadEvent) cell { return long(string(e.Payload)) }},
	},
	name: func(e deadEvent) string { return strconv.FormatInt(e.Offset, 10) },
}

func (a *app) groupDead() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "dead TOPIC GROUP",
		Short:             "List the dead events of a group",
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: a.completeGroup,
	}
	a.prints(cmd, deadEventView)
	return a.does(cmd, func(ctx context.Context, args []string) error {
		return a.look(ctx, func(db *honker.DB) error {
			l, err := newList(a, deadEventView)
			if err != nil {
				return err
			}
			err = eachDead(ctx, onTopic(db, args[0]).Group(args[1], nil), l.add)
			if err != nil {
				return missing(err, a.command("groups"))
			}
			return l.close("dead events")
		})
	})
}

// eachDead calls do for each of a group's dead events, including events that can't be decoded.
func eachDead(ctx context.Context, g *honker.Group[json.RawMessage], do func(deadEvent) error) error {
	for e, err := range g.Dead(ctx) {
		if e == nil {
			return err
		}
		err := do(deadEvent{Offset: e.Offset, Topic: e.Topic, Key: e.Key, Attempts: e.Attempts, LastError: e.LastError,
			DiedAt: e.DiedAt, CreatedAt: e.CreatedAt, Payload: e.Payload})
		if err != nil {
			return err
		}
	}
	return nil
}

func (a *app) groupRedeliver() *cobra.Command {
	cmd := &cobra.Command{
		Use:        "redeliver TOPIC GROUP [OFFSET...]",
		SuggestFor: []string{"requeue", "retry"},
		Short:      "Deliver dead events again, with all their attempts",
		Example:    `  honker group redeliver orders shippers --all --dry-run`,
	}
	return a.onDeadEvents(cmd, "redeliver", "redelivered", func(ctx context.Context, g *honker.Group[json.RawMessage], offset int64) (bool, error) {
		return g.Redeliver(ctx, offset)
	})
}

func (a *app) groupDiscard() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "discard TOPIC GROUP [OFFSET...]",
		Short: "Discard dead events, as if the group had handled them",
	}
	return a.onDeadEvents(cmd, "discard", "discarded", func(ctx context.Context, g *honker.Group[json.RawMessage], offset int64) (bool, error) {
		return g.Discard(ctx, offset)
	})
}

// onDeadEvents makes cmd call do for the dead events named by its arguments, or for all dead
// events.
func (a *app) onDeadEvents(cmd *cobra.Command, name, done string, do func(context.Context, *honker.Group[json.RawMessage], int64) (bool, error)) *cobra.Command {
	var c changing
	all := false
	cmd.Args = cobra.MinimumNArgs(2)
	cmd.ValidArgsFunction = a.completeDeadEvent
	c.addTo(cmd)
	cmd.Flags().BoolVar(&all, "all", false, "select all dead events of the group")
	a.prints(cmd, outcomeView)
	return a.does(cmd, func(ctx context.Context, args []string) error {
		offsets, err := numbersOf(args[2:], "an offset")
		if err != nil {
			return err
		}
		if all == (len(offsets) > 0) {
			return usage("the same with --all", "no dead events selected: give offsets or --all")
		}
		return a.change(ctx, func(db *honker.DB) error {
			group := onTopic(db, args[0]).Group(args[1], nil)
			v := verb{name: name, done: done, what: "dead event"}
			v.do = func(ctx context.Context, dryRun bool) (*admin.Report, error) {
				return eachOffset(ctx, group, offsets, dryRun, do)
			}
			return a.applyToEvents(ctx, v, c, offsets, args[:2])
		})
	})
}

// applyToEvents is like apply, but for events selected by offset. The exit code is codeNo if none of them were
// changed.
func (a *app) applyToEvents(ctx context.Context, v verb, c changing, offsets []int64, group []string) error {
	do, last := v.do, new(admin.Report)
	v.do = func(ctx context.Context, dryRun bool) (r *admin.Report, err error) {
		r, err = do(ctx, dryRun)
		if r != nil {
			last = r
		}
		return r, err
	}
	if err := a.apply(ctx, v, c); err != nil {
		return missing(err, a.command("groups"))
	}
	if len(offsets) > 0 && last.Matched == 0 {
		return &coded{code: codeNo, err: errors.New("none of these events is dead"), try: a.command("group", "dead", group[0], group[1])}
	}
	return nil
}

// eachOffset calls do for each dead event with one of these offsets, or for all dead events if
// offsets is nil.
func eachOffset(ctx context.Context, g *honker.Group[json.RawMessage], offsets []int64, dryRun bool,
	do func(context.Context, *honker.Group[json.RawMessage], int64) (bool, error)) (*admin.Report, error) {
	r := new(admin.Report)
	var dead []int64
	err := eachDead(ctx, g, func(e deadEvent) error {
		if offsets == nil || slices.Contains(offsets, e.Offset) {
			dead = append(dead, e.Offset)
		}
		return nil
	})
	r.Matched = int64(len(dead))
	if err != nil || dryRun {
		return r, err
	}
	for i, offset := range dead {
		was, err := do(ctx, g, offset)
		if err != nil {
			if r.Changed > 0 {
				r.Left = int64(len(dead) - i)
			}
			return r, err
		}
		if was {
			r.Changed++
		}
	}
	return r, nil
}

func (a *app) groupRm() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "rm TOPIC GROUP",
		SuggestFor:        []string{"delete", "remove"},
		Short:             "Remove a group, its members and their deliveries",
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: a.completeGroup,
	}
	a.prints(cmd, removedView)
	return a.does(cmd, func(ctx context.Context, args []string) error {
		return a.change(ctx, func(db *honker.DB) error {
			was, err := onTopic(db, args[0]).Group(args[1], nil).Delete(ctx)
			switch {
			case err != nil:
				return err
			case !was:
				return &coded{code: codeNo, err: fmt.Errorf("no group %q of topic %q", args[1], args[0]), try: a.command("groups")}
			}
			return one(a, removedView, removed{Topic: args[0], Name: args[1]})
		})
	})
}

// completeGroup completes a topic or pattern that has groups, and then the name of a group.
func (a *app) completeGroup(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	return a.complete(cmd, func(ctx context.Context, db *honker.DB) ([]string, error) {
		all, err := admin.Groups(ctx, db)
		var pairs [][2]string
		for _, g := range all {
			pairs = append(pairs, [2]string{g.Topic, g.Name})
		}
		return nextOf(args, pairs), err
	})
}

// completeDeadEvent is like completeGroup, and then completes the offsets of the group's dead
// events.
func (a *app) completeDeadEvent(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	if len(args) < 2 {
		return a.completeGroup(cmd, args, begun)
	}
	return a.complete(cmd, func(ctx context.Context, db *honker.DB) (offers []string, err error) {
		err = eachDead(ctx, onTopic(db, args[0]).Group(args[1], nil), func(e deadEvent) error {
			offers = append(offers, strconv.FormatInt(e.Offset, 10)+"\t"+clean(brief(e.LastError)))
			return nil
		})
		return offers, err
	})
}
