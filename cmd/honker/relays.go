package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
)

var relayView = view[admin.RelayInfo]{
	columns: []column[admin.RelayInfo]{
		{"family", func(r admin.RelayInfo) cell { return dashed(r.Family) }},
		{"queue", func(r admin.RelayInfo) cell { return text(r.Queue) }},
		{"partitions", func(r admin.RelayInfo) cell { return number(int64(r.Partitions)) }},
		{"waiting", func(r admin.RelayInfo) cell { return count(honker.Count{N: r.Waiting}) }},
		{"oldest", func(r admin.RelayInfo) cell { return when(r.Oldest) }},
		{"blocked", func(r admin.RelayInfo) cell { return alarming(int64(r.Blocked), yellow) }},
		{"attempts", func(r admin.RelayInfo) cell { return count(honker.Count{N: r.Attempts}) }},
		{"dead", func(r admin.RelayInfo) cell { return alarming(r.Dead, red) }},
	},
	name: func(r admin.RelayInfo) string { return r.Queue },
}

// alarming shows a number that is colored unless it is 0.
func alarming(n int64, s style) cell {
	c := count(honker.Count{N: n})
	if n > 0 {
		return c.in(s)
	}
	return c
}

func (a *app) relays() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "relays",
		Short: "List relay queues, with waiting messages and dead letters",
		Long: `relays lists the queues of package relay. blocked is the number of partitions that wait for a retry after a failure, and
attempts the most attempts at the first message of a partition.`,
		GroupID: groupLook,
		Args:    cobra.NoArgs,
	}
	a.prints(cmd, relayView)
	return a.does(cmd, func(ctx context.Context, _ []string) error {
		return a.look(ctx, func(db *honker.DB) error {
			all, err := admin.Relays(ctx, db)
			if err != nil {
				return err
			}
			return many(a, relayView, all, "relay queues")
		})
	})
}

func (a *app) relay() *cobra.Command {
	return parent("relay", "Show a relay queue, requeue and discard its dead letters, and free its partitions", groupChange,
		a.relayShow(), a.relayDead(), a.relayRequeue(), a.relayDiscard(), a.relayPartitions(), a.relayBreak())
}

var relayProgressView = view[admin.RelayProgress]{
	columns: []column[admin.RelayProgress]{
		{"partition", func(p admin.RelayProgress) cell { return number(int64(p.Partition)) }},
		{"processed", func(p admin.RelayProgress) cell { return number(p.Processed) }},
		{"waiting", func(p admin.RelayProgress) cell { return count(honker.Count{N: p.Waiting}) }},
		{"oldest", func(p admin.RelayProgress) cell { return when(p.Oldest) }},
		{"attempts", func(p admin.RelayProgress) cell { return count(honker.Count{N: p.Attempts}) }},
		{"retry_at", func(p admin.RelayProgress) cell { return when(p.RetryAt) }},
		{"owner", func(p admin.RelayProgress) cell { return dashed(p.Owner) }},
		{"lease_until", func(p admin.RelayProgress) cell { return when(p.LeaseUntil) }},
		{"last_error", func(p admin.RelayProgress) cell { return long(p.LastError) }},
	},
	name: func(p admin.RelayProgress) string { return strconv.Itoa(p.Partition) },
}

func (a *app) relayShow() *cobra.Command {
	var family string
	cmd := &cobra.Command{
		Use:   "show QUEUE",
		Short: "Show the partitions of a relay queue",
		Long: `show lists the partitions of a relay queue, with the messages that wait, the attempts at the first of them, the error of the
last attempt, and the process that holds the partition.`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeRelay(&family),
	}
	a.addFamily(cmd, &family)
	a.prints(cmd, relayProgressView)
	return a.does(cmd, func(ctx context.Context, args []string) error {
		return a.look(ctx, func(db *honker.DB) error {
			all, err := admin.Relays(ctx, db)
			if err != nil {
				return err
			}
			for _, r := range all {
				if r.Family == family && r.Queue == args[0] {
					return many(a, relayProgressView, r.Progress, "partitions")
				}
			}
			return a.noRelay(args[0])
		})
	})
}

func (a *app) noRelay(queue string) error {
	return &coded{code: codeNo, err: fmt.Errorf("no relay queue %q in this family", queue), try: a.command("relays")}
}

// relayLetter is a dead letter of a relay, in its stored form.
type relayLetter struct {
	ID        int64
	Partition int
	Seq       int64
	Key       string
	Type      string
	State     string
	Attempts  int64
	DiedAt    time.Time
	CreatedAt time.Time
	HoldUntil time.Time
	SettledAt time.Time
	LastError string
	Payload   json.RawMessage
}

var relayLetterView = view[relayLetter]{
	columns: []column[relayLetter]{
		{"id", func(d relayLetter) cell { return id(d.ID) }},
		{"partition", func(d relayLetter) cell { return number(int64(d.Partition)) }},
		{"key", func(d relayLetter) cell { return dashed(d.Key) }},
		{"state", func(d relayLetter) cell { return text(d.State) }},
		{"attempts", func(d relayLetter) cell { return number(d.Attempts) }},
		{"died_at", func(d relayLetter) cell { return when(d.DiedAt) }},
		{"last_error", func(d relayLetter) cell { return long(d.LastError) }},
		{"payload", func(d relayLetter) cell { return long(string(d.Payload)) }},
	},
	name: func(d relayLetter) string { return strconv.FormatInt(d.ID, 10) },
}

// relayPick holds the flags that select dead letters of a relay queue.
type relayPick struct {
	family, key, kind string
	partition         int
	since             time.Time
}

func (p *relayPick) addTo(a *app, cmd *cobra.Command) {
	a.addFamily(cmd, &p.family)
	flags := cmd.Flags()
	flags.IntVar(&p.partition, "partition", -1, "only of this `partition`")
	flags.StringVar(&p.key, "key", "", "only messages with this `key`")
	flags.StringVar(&p.kind, "type", "", "only messages of this `type`, such as application/json")
	flags.Var(ago(&p.since), "died-since", "only messages that died at or after this `time`, or this long ago")
}

// any reports whether the flags select only some of the dead letters.
func (p *relayPick) any() bool {
	return p.partition >= 0 || p.key != "" || p.kind != "" || !p.since.IsZero()
}

func (p *relayPick) of(queue, state string) admin.RelayDeadFilter {
	f := admin.RelayDeadFilter{Family: p.family, Queue: queue, Key: p.key, Type: p.kind, Since: p.since, State: state}
	if p.partition >= 0 {
		f.Partition = &p.partition
	}
	return f
}

// relayStates lists the values of --state. Dead letters that are pending or held need a decision.
var relayStates = []string{"pending", "replaying", "resolved", "discarded", "any"}

func (a *app) relayDead() *cobra.Command {
	var pick relayPick
	state, limit, after := relayStates[0], 50, int64(0)
	cmd := &cobra.Command{
		Use:   "dead QUEUE",
		Short: "List the dead letters of a relay queue",
		Long: `dead lists the messages of a relay queue that were rejected or have used up their attempts, in the order in which they were
sent. They are pending until a program replays them, or until they are requeued or discarded. Payloads that are not JSON are
printed as text.`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeRelay(&pick.family),
	}
	pick.addTo(a, cmd)
	cmd.Flags().StringVar(&state, "state", state, "only dead letters in this `state`: pending, replaying, resolved, discarded or any")
	must(cmd.RegisterFlagCompletionFunc("state", cobra.FixedCompletions(relayStates, cobra.ShellCompDirectiveNoFileComp)))
	cmd.Flags().IntVar(&limit, "limit", limit, "list at most `n`, from 1 to 1000")
	cmd.Flags().Int64Var(&after, "after", 0, "continue after this `id`, printed at the end of the previous list")
	a.prints(cmd, relayLetterView)
	return a.does(cmd, func(ctx context.Context, args []string) error {
		switch {
		case limit < 1 || limit > pageSize:
			return usage("", "--limit %d is not between 1 and %d", limit, pageSize)
		case !slices.Contains(relayStates, state):
			return usage("", "--state %q is not pending, replaying, resolved, discarded or any", state)
		case state == "any":
			state = ""
		}
		f := pick.of(args[0], state)
		f.After = after
		return a.look(ctx, func(db *honker.DB) error { return a.listRelayDead(ctx, db, f, limit) })
	})
}

func (a *app) listRelayDead(ctx context.Context, db *honker.DB, f admin.RelayDeadFilter, limit int) error {
	l, err := newPage(a, relayLetterView, "dead")
	if err != nil {
		return err
	}
	last, next := int64(0), ""
	for d, err := range admin.EachRelayDead(ctx, db, f) {
		if errors.Is(err, honker.ErrNotFound) {
			return a.noRelay(f.Queue)
		}
		if err != nil {
			return err
		}
		if l.n == limit {
			next = strconv.FormatInt(last, 10)
			break
		}
		last = d.ID
		if err := l.add(relayLetterOf(d)); err != nil {
			return err
		}
	}
	return l.closePage("dead letters", next)
}

func relayLetterOf(d admin.RelayDead) relayLetter {
	return relayLetter{
		ID: d.ID, Partition: d.Partition, Seq: d.Seq, Key: d.Key, Type: d.Type, State: d.State, Attempts: d.Attempts,
		DiedAt: d.DiedAt, CreatedAt: d.CreatedAt, HoldUntil: d.HoldUntil, SettledAt: d.SettledAt, LastError: d.LastError, Payload: d.Payload,
	}
}

func (a *app) relayRequeue() *cobra.Command {
	cmd := &cobra.Command{
		Use:        "requeue QUEUE [ID...]",
		SuggestFor: []string{"replay", "retry", "redeliver"},
		Short:      "Send dead letters of a relay queue again",
		Long: `requeue sends dead letters again, each as the last message of its partition. It asks before it sends more than one. Dead letters that a
program replays, and those that are resolved or discarded, are skipped.`,
		Example: `  honker relay requeue webhooks 17
  honker relay requeue webhooks --key acme --dry-run
  honker relay requeue webhooks --all --yes`,
	}
	return a.onRelayDead(cmd, verb{name: "requeue", done: "requeued", what: "dead letter"}, admin.RequeueRelayDead)
}

func (a *app) relayDiscard() *cobra.Command {
	cmd := &cobra.Command{
		Use:        "discard QUEUE [ID...]",
		SuggestFor: []string{"delete", "rm"},
		Short:      "Give up on dead letters of a relay queue",
		Long: `discard gives up on dead letters. It asks before it discards more than one. They remain in the database as discarded until
the relay's application cleans them up. It skips the same dead letters as requeue.`,
		Example: `  honker relay discard webhooks 17
  honker relay discard webhooks --type text/plain --dry-run`,
	}
	return a.onRelayDead(cmd, verb{name: "discard", done: "discarded", what: "dead letter"}, admin.DiscardRelayDead)
}

// onRelayDead makes cmd call do for the dead letters that its arguments or flags select.
func (a *app) onRelayDead(cmd *cobra.Command, v verb, do func(context.Context, *honker.DB, string, string, ...int64) (int, error)) *cobra.Command {
	var pick relayPick
	var c changing
	all := false
	cmd.Args = cobra.MinimumNArgs(1)
	cmd.ValidArgsFunction = a.completeRelayDead(&pick.family)
	pick.addTo(a, cmd)
	c.addTo(cmd)
	cmd.Flags().BoolVar(&all, "all", false, "select all dead letters of the queue")
	a.prints(cmd, outcomeView)
	return a.does(cmd, func(ctx context.Context, args []string) error {
		ids, err := numbersOf(args[1:], "an id")
		if err != nil {
			return err
		}
		if len(ids) == 0 && !all && !pick.any() {
			return usage("the same with --all", "no dead letters selected: give ids, flags or --all")
		}
		queue := args[0]
		return a.change(ctx, func(db *honker.DB) error {
			var open []int64
			v.do = func(ctx context.Context, dryRun bool) (r *admin.Report, err error) {
				if open == nil { // letters that die while the user is being asked are not part of the number shown
					open, err = openRelayDead(ctx, db, &pick, queue, ids)
				}
				r = &admin.Report{Matched: int64(len(open))}
				if err != nil || dryRun || len(open) == 0 {
					return r, err
				}
				n, err := do(ctx, db, pick.family, queue, open...)
				r.Changed = int64(n)
				if err != nil && n > 0 {
					r.Left = r.Matched - r.Changed
				}
				return r, err
			}
			err := a.apply(ctx, v, c)
			switch {
			case errors.Is(err, honker.ErrNotFound):
				return a.noRelay(queue)
			case err == nil && len(ids) > 0 && len(open) == 0:
				return &coded{code: codeNo, err: errors.New("none of these is an open dead letter of the queue"), try: a.command("relay", "dead", queue, "--state", "any")}
			}
			return err
		})
	})
}

// openRelayDead returns the dead letters that pick selects and that are neither resolved nor discarded, among ids
// unless there are none.
func openRelayDead(ctx context.Context, db *honker.DB, pick *relayPick, queue string, ids []int64) (open []int64, err error) {
	f := pick.of(queue, "")
	if len(ids) > 0 {
		f.After = slices.Min(ids) - 1
	}
	for d, err := range admin.EachRelayDead(ctx, db, f) {
		if err != nil {
			return nil, err
		}
		if len(ids) > 0 && d.ID > slices.Max(ids) {
			break
		}
		if d.SettledAt.IsZero() && (len(ids) == 0 || slices.Contains(ids, d.ID)) {
			open = append(open, d.ID)
		}
	}
	return open, nil
}

// addFamily adds the flag --family.
func (a *app) addFamily(cmd *cobra.Command, family *string) {
	cmd.Flags().StringVar(family, "family", "", "`name` of the relay; default: the relay without a name")
	must(cmd.RegisterFlagCompletionFunc("family", func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return a.complete(cmd, func(ctx context.Context, db *honker.DB) ([]string, error) {
			all, err := admin.Relays(ctx, db)
			all = slices.CompactFunc(all, func(a, b admin.RelayInfo) bool { return a.Family == b.Family })
			all = slices.DeleteFunc(all, func(r admin.RelayInfo) bool { return r.Family == "" })
			return words(all, func(r admin.RelayInfo) string { return r.Family }), err
		})
	}))
}

// completion suggests values of an argument.
type completion = func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective)

// completeRelay completes the name of a relay queue in the family.
func (a *app) completeRelay(family *string) completion {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return a.complete(cmd, func(ctx context.Context, db *honker.DB) ([]string, error) {
			all, err := admin.Relays(ctx, db)
			all = slices.DeleteFunc(all, func(r admin.RelayInfo) bool { return r.Family != *family })
			return words(all, func(r admin.RelayInfo) string { return r.Queue }), err
		})
	}
}

// completeRelayDead is like completeRelay, and then completes the ids of pending dead letters.
func (a *app) completeRelayDead(family *string) completion {
	const most = 50
	return func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		if len(args) == 0 {
			return a.completeRelay(family)(cmd, args, begun)
		}
		return a.complete(cmd, func(ctx context.Context, db *honker.DB) (offers []string, err error) {
			for d, err := range admin.EachRelayDead(ctx, db, admin.RelayDeadFilter{Family: *family, Queue: args[0], State: relayStates[0]}) {
				if err != nil || len(offers) == most {
					return offers, err
				}
				offers = append(offers, strconv.FormatInt(d.ID, 10)+"\t"+clean(long(d.LastError).human))
			}
			return offers, nil
		})
	}
}
