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

func (a *app) relayPartitions() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "partitions",
		Short: "List partitions that are held, or paused after a failure",
		Long: `partitions lists the partitions of relays that no process can take now. lease_until is the end of the holder's lease, and
retry_at is the time of the next attempt after a failure.`,
		Args: cobra.NoArgs,
	}
	a.prints(cmd, relayPartitionView)
	return a.does(cmd, func(ctx context.Context, _ []string) error {
		return a.look(ctx, func(db *honker.DB) error {
			all, err := admin.RelayPartitions(ctx, db)
			if err != nil {
				return err
			}
			return many(a, relayPartitionView, all, "partitions are held or paused")
		})
	})
}

func (a *app) relayBreak() *cobra.Command {
	var flags changing
	var family string
	cmd := &cobra.Command{
		Use:        "break QUEUE [PARTITION]",
		SuggestFor: []string{"unlock", "free", "retry"},
		Short:      "End the lease of a partition, or its pause after a failure",
		Long: `break ends the lease of a partition, or of all partitions of a queue, and the pause after a failure. The next process can take
the partition at once. Use break if a process is gone or hangs, after a wrong clock has left times in the future, or to retry a
customer's endpoint now. A process that is still handling a message continues, in parallel with the new holder, but its progress
is not saved. The exit code is 1 if there was nothing to free.`,
		Example: `  honker relay break webhooks 3
  honker relay break webhooks --yes`,
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: a.completeRelayPartition,
	}
	flags.addTo(cmd)
	cmd.Annotations = nil // partitions can be printed as names
	a.addFamily(cmd, &family)
	a.prints(cmd, relayPartitionView)
	return a.does(cmd, func(ctx context.Context, args []string) error {
		if len(args) > 1 {
			if n, err := strconv.Atoi(args[1]); err != nil || n < 0 {
				return usage("", "%q is not a partition: it must be a number from 0", args[1])
			}
		}
		return a.change(ctx, func(db *honker.DB) error { return a.breakRelay(ctx, db, family, args, flags) })
	})
}

// breakRelay frees the partitions selected by args.
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
	none := &coded{code: codeNo, err: fmt.Errorf("no partition of queue %q is held or paused", args[0]), try: a.command("relay", "partitions")}
	if len(args) > 1 {
		none.err = fmt.Errorf("partition %s of queue %q is neither held nor paused", args[1], args[0])
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
		return none // all have since been taken again or released
	}
	told := many(a, relayPartitionView, freed, "")
	if err != nil {
		return partly(err, "broke %d of %s", len(freed), plural(int64(len(found)), "partition"))
	}
	return told
}

// breakEach frees each of the partitions found. It returns those it freed, even if it also returns an error.
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
		Use:   "presences",
		Short: "List live actors of package dispatch",
		Long: `presences lists the names of actors in use, with the process of each actor, and the time at which the name expires without
another heartbeat.`,
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
			return many(a, presenceView, all, "live actors")
		})
	})
}

func (a *app) presence() *cobra.Command {
	return parent("presence", "Free the name of an actor", groupChange, a.presenceBreak())
}

func (a *app) presenceBreak() *cobra.Command {
	var owner string
	cmd := &cobra.Command{
		Use:        "break KEY",
		SuggestFor: []string{"unlock", "rm", "free"},
		Short:      "Free the name of an actor that is gone",
		Long: `break frees the name of an actor, given by its key. A live actor takes its name back at its next heartbeat, unless another
actor has taken it. Then the first actor ends. With --owner, the name is freed only if this owner still has it. The exit code
is 1 if the name is not in use.`,
		Example:           `  honker presence break hero:meta:actor:inst:osis:default:2`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completePresence,
	}
	cmd.Flags().StringVar(&owner, "owner", "", "free the name only if this `owner` has it")
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
	free := &coded{code: codeNo, err: fmt.Errorf("the name %q is not in use", key), try: a.command("presences")}
	if owner == "" {
		return free
	}
	was, err := admin.BreakPresence(ctx, db, key, owner)
	switch {
	case err != nil:
		return err
	case !was:
		free.err = fmt.Errorf("the name %q is not owned by %s", key, owner)
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
