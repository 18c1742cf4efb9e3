package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
)

var relayPartitionView = view[admin.RelayPartition]{
	columns: []column[admin.RelayPartition]{
		{"queue", func(p admin.RelayPartition) cell { return text(p.Queue) }},
		{"partition", func(p admin.RelayPartition) cell { return number(int64(p.Partition)) }},
		{"family", func(p admin.RelayPartition) cell { return text(p.Family) }},
		{"owner", func(p admin.RelayPartition) cell { return text(p.Owner) }},
		{"epoch", func(p admin.RelayPartition) cell { return number(p.Epoch) }},
		{"lease_until", func(p admin.RelayPartition) cell { return when(p.LeaseUntil) }},
		{"retry_at", func(p admin.RelayPartition) cell { return when(p.RetryAt) }},
		{"attempts", func(p admin.RelayPartition) cell { return number(p.Attempts) }},
		{"error", func(p admin.RelayPartition) cell { return text(p.LastError) }},
	},
	name: func(p admin.RelayPartition) string { return p.Queue + "/" + strconv.Itoa(p.Partition) },
}

func (a *app) relay() *cobra.Command {
	return parent("relay", "Relays: partitions that are held or wait, and to free them", groupChange, a.relayPartitions(), a.relayBreak())
}

func (a *app) relayPartitions() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "partitions",
		Short: "The partitions that a process holds, or that wait after a failure",
		Long: `partitions lists the partitions of relays that no process can take now: lease_until is when the lease of the process
that holds it ends, and retry_at is when it is tried again after a failure.`,
		Args: cobra.NoArgs,
	}
	a.prints(cmd, relayPartitionView)
	return a.does(cmd, func(ctx context.Context, _ []string) error {
		return a.look(ctx, func(db *honker.DB) error {
			all, err := admin.RelayPartitions(ctx, db)
			if err != nil {
				return err
			}
			return many(a, relayPartitionView, all, "partitions are held or wait")
		})
	})
}

func (a *app) relayBreak() *cobra.Command {
	var flags changing
	var family string
	cmd := &cobra.Command{
		Use:        "break QUEUE [PARTITION]",
		SuggestFor: []string{"unlock", "free", "retry"},
		Short:      "Free a partition: end its lease and its pause after a failure",
		Long: `break ends the lease of a partition, or of all partitions of a queue, and the pause after a failure. The next process takes
it at once. Use it for a process that is gone or hangs, for times that a wrong clock has left, and to try a customer's endpoint again now. A process that
still handles a message goes on with it, beside the one that takes over, and its progress is not saved. The exit code is 1 if nothing was to be freed.`,
		Example: `  honker relay break webhooks 3
  honker relay break webhooks --yes`,
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: a.completeRelayPartition,
	}
	flags.addTo(cmd)
	cmd.Annotations = nil // partitions have names
	cmd.Flags().StringVar(&family, "family", "", "of the relay, by its `name`; default: the one without a name")
	a.prints(cmd, relayPartitionView)
	return a.does(cmd, func(ctx context.Context, args []string) error {
		if len(args) > 1 {
			if n, err := strconv.Atoi(args[1]); err != nil || n < 0 {
				return usage("", "%q is no partition: a number from 0 on", args[1])
			}
		}
		return a.change(ctx, func(db *honker.DB) error { return a.breakRelay(ctx, db, family, args, flags) })
	})
}

// breakRelay frees the partitions that args name.
func (a *app) breakRelay(ctx context.Context, db *honker.DB, family string, args []string, flags changing) error {
	all, err := admin.RelayPartitions(ctx, db)
	if err != nil {
		return err
	}
	var found []admin.RelayPartition
	for _, p := range all {
		if p.Family == family && p.Queue == args[0] && (len(args) == 1 || strconv.Itoa(p.Partition) == args[1]) {
			found = append(found, p)
		}
	}
	none := &coded{code: codeNo, err: fmt.Errorf("no partition of queue %q is held or waits", args[0]), try: a.command("relay", "partitions")}
	if len(args) > 1 {
		none.err = fmt.Errorf("partition %s of queue %q is not held and does not wait", args[1], args[0])
	}
	switch {
	case len(found) == 0:
		return none
	case flags.dryRun:
		if err := many(a, relayPartitionView, found, ""); err != nil {
			return err
		}
		return &coded{code: codeWouldChange}
	case len(found) > 1 && !flags.yes:
		if err := a.confirm(ctx, fmt.Sprintf("break %s?", plural(int64(len(found)), "partition"))); err != nil {
			return err
		}
	}
	freed, err := a.breakEach(ctx, db, found)
	if err != nil && len(freed) == 0 {
		return err
	}
	if len(freed) == 0 {
		return none // each was taken again meanwhile, or let go
	}
	told := many(a, relayPartitionView, freed, "")
	if err != nil {
		return partly(err, "broke %d of %s", len(freed), plural(int64(len(found)), "partition"))
	}
	return told
}

// breakEach returns the partitions that it has freed, also with an error.
func (a *app) breakEach(ctx context.Context, db *honker.DB, found []admin.RelayPartition) (freed []admin.RelayPartition, err error) {
	for _, p := range found {
		was, err := admin.BreakRelayPartition(ctx, db, p)
		if err != nil {
			return freed, err
		}
		if was {
			freed = append(freed, p)
		}
	}
	return freed, nil
}

func (a *app) completeRelayPartition(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 1 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.complete(cmd, func(ctx context.Context, db *honker.DB) ([]string, error) {
		all, err := admin.RelayPartitions(ctx, db)
		var offers []admin.RelayPartition
		seen := map[string]bool{}
		for _, p := range all {
			if len(args) == 0 && !seen[p.Queue] || len(args) == 1 && p.Queue == args[0] {
				seen[p.Queue] = true
				offers = append(offers, p)
			}
		}
		return words(offers, func(p admin.RelayPartition) string {
			if len(args) == 0 {
				return p.Queue
			}
			return strconv.Itoa(p.Partition)
		}), err
	})
}

var presenceView = view[admin.PresenceInfo]{
	columns: []column[admin.PresenceInfo]{
		{"key", func(p admin.PresenceInfo) cell { return text(p.Key) }},
		{"owner", func(p admin.PresenceInfo) cell { return text(p.Owner) }},
		{"expires_at", func(p admin.PresenceInfo) cell { return when(p.ExpiresAt) }},
		{"hostname", func(p admin.PresenceInfo) cell { return text(p.Hostname) }},
		{"pid", func(p admin.PresenceInfo) cell { return number(int64(p.PID)) }},
		{"last_heartbeat", func(p admin.PresenceInfo) cell { return when(p.LastHeartbeat) }},
	},
	name: func(p admin.PresenceInfo) string { return p.Key },
}

func (a *app) presences() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "presences",
		Short:   "The actors of package dispatch that live, and their names",
		Long:    `presences lists the names of actors that are taken, by which process, and until when they are unless it is heard of again.`,
		GroupID: groupLook,
		Args:    cobra.NoArgs,
	}
	a.prints(cmd, presenceView)
	return a.does(cmd, func(ctx context.Context, _ []string) error {
		return a.look(ctx, func(db *honker.DB) error {
			all, err := admin.Presences(ctx, db)
			if err != nil {
				return err
			}
			return many(a, presenceView, all, "actors live")
		})
	})
}

func (a *app) presence() *cobra.Command {
	return parent("presence", "One actor: free its name", groupChange, a.presenceBreak())
}

func (a *app) presenceBreak() *cobra.Command {
	var owner string
	cmd := &cobra.Command{
		Use:        "break KEY",
		SuggestFor: []string{"unlock", "rm", "free"},
		Short:      "Free the name of an actor that is gone",
		Long: `break frees the name of an actor, by its key. An actor that lives takes its name back at its next heartbeat, unless another has
taken it: then it ends. With --owner the name is freed only if that still has it. The exit code is 1 if the name is not taken.`,
		Example:           `  honker presence break hero:meta:actor:inst:osis:default:2`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completePresence,
	}
	cmd.Flags().StringVar(&owner, "owner", "", "only if this `name` has it; default: whichever does")
	a.prints(cmd, brokenView)
	return a.does(cmd, func(ctx context.Context, args []string) error {
		return a.change(ctx, func(db *honker.DB) error { return a.breakPresence(ctx, db, args[0], owner) })
	})
}

func (a *app) breakPresence(ctx context.Context, db *honker.DB, key, owner string) error {
	if owner == "" {
		all, err := admin.Presences(ctx, db)
		if err != nil {
			return err
		}
		for _, p := range all {
			if p.Key == key {
				owner = p.Owner
			}
		}
	}
	free := &coded{code: codeNo, err: fmt.Errorf("the name %q is not taken", key), try: a.command("presences")}
	if owner == "" {
		return free
	}
	was, err := admin.BreakPresence(ctx, db, key, owner)
	switch {
	case err != nil:
		return err
	case !was:
		free.err = fmt.Errorf("the name %q is not taken by %s", key, owner)
		return free
	}
	return one(a, brokenView, broken{Name: key, Owner: owner})
}

func (a *app) completePresence(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.complete(cmd, func(ctx context.Context, db *honker.DB) ([]string, error) {
		all, err := admin.Presences(ctx, db)
		return words(all, func(p admin.PresenceInfo) string { return p.Key }), err
	})
}
