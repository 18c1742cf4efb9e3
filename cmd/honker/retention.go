package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
)

// queueRetention is the retention of a queue's ended jobs.
type queueRetention struct {
	Queue     string
	Retention honker.QueueRetention
}

var queueRetentionView = view[queueRetention]{
	columns: []column[queueRetention]{
		{"queue", func(r queueRetention) cell { return text(r.Queue) }},
		{"done", func(r queueRetention) cell { return orWord(retentionText(r.Retention.Done, "job"), "none") }},
		{"dead", func(r queueRetention) cell { return orWord(retentionText(r.Retention.Dead, "job"), "all") }},
	},
	name: func(r queueRetention) string { return r.Queue },
}

// topicRetention is the retention of a topic.
type topicRetention struct {
	Topic     string
	Retention honker.Retention
}

var topicRetentionView = view[topicRetention]{
	columns: []column[topicRetention]{
		{"topic", func(r topicRetention) cell { return text(r.Topic) }},
		{"retention", func(r topicRetention) cell { return orWord(retentionText(r.Retention, "event"), "all") }},
	},
	name: func(r topicRetention) string { return r.Topic },
}

// orWord shows word to people if s is empty.
func orWord(s, word string) cell {
	if s == "" {
		return cell{human: word}
	}
	return text(s)
}

// retentionText describes a retention. what is the noun for the retained rows. It returns "" if there is no limit.
func retentionText(r honker.Retention, what string) string {
	switch {
	case r.MaxCount > 0 && r.MaxAge > 0:
		return plural(r.MaxCount, what) + ", " + admin.FormatSpan(r.MaxAge)
	case r.MaxCount > 0:
		return plural(r.MaxCount, what)
	case r.MaxAge > 0:
		return admin.FormatSpan(r.MaxAge)
	}
	return ""
}

// bounds holds the flags for a Retention.
type bounds struct {
	honker.Retention
	count, age string // flag names
}

func (b *bounds) addTo(cmd *cobra.Command, what string) {
	cmd.Flags().Int64Var(&b.MaxCount, b.count, 0, "keep the newest `n` "+what)
	cmd.Flags().Var(spanFlag{&b.MaxAge}, b.age, "keep "+what+" no older than this span: 24h, 30d")
}

// over returns was with the changes from the given flags.
func (b *bounds) over(cmd *cobra.Command, was honker.Retention) honker.Retention {
	if cmd.Flags().Changed(b.count) {
		was.MaxCount = b.MaxCount
	}
	if cmd.Flags().Changed(b.age) {
		was.MaxAge = b.MaxAge
	}
	return was
}

// retaining holds the flags of a command that sets retentions.
type retaining struct {
	changing
	all  []*bounds
	none bool
}

func (r *retaining) addTo(cmd *cobra.Command) {
	r.changing.addTo(cmd)
	cmd.Flags().BoolVar(&r.none, "none", false, "remove all bounds except those set by other flags")
}

// named reports whether any flag was given. It rejects negative limits.
func (r *retaining) named(cmd *cobra.Command) (named bool, err error) {
	named = r.none
	for _, b := range r.all {
		if b.MaxCount < 0 {
			return false, usage("", "--%s %d is negative", b.count, b.MaxCount)
		}
		named = named || cmd.Flags().Changed(b.count) || cmd.Flags().Changed(b.age)
	}
	return named, nil
}

func (a *app) queueRetention() *cobra.Command {
	done, dead := bounds{count: "done-count", age: "done"}, bounds{count: "dead-count", age: "dead"}
	flags := retaining{all: []*bounds{&done, &dead}}
	cmd := &cobra.Command{
		Use:        "retention QUEUE",
		SuggestFor: []string{"keep", "retain"},
		Short:      "Show or set the retention of done and dead jobs",
		Long: `retention shows how many done and dead jobs a queue keeps. By default it keeps no done jobs and all dead jobs. With flags
it sets the given bounds, and keeps the others. 0 removes a bound, and --none removes all. A job outside either bound is
deleted by the next maintenance. If that would delete more than one job, retention asks first.`,
		Example: `  honker queue retention emails --done 24h --dead 30d
  honker queue retention emails --done-count 10000 --dry-run`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeQueue,
	}
	flags.addTo(cmd)
	done.addTo(cmd, "jobs that were done")
	dead.addTo(cmd, "dead jobs")
	return a.sets(cmd, &flags, queueRetentionView, a.showQueueRetention, func(ctx context.Context, db *honker.DB, queue string) (retained, error) {
		was, err := byName(db, queue).Retention(ctx)
		if flags.none {
			was = honker.QueueRetention{}
		}
		r := honker.QueueRetention{Done: done.over(cmd, was.Done), Dead: dead.over(cmd, was.Dead)}
		return retained{
			what: "job",
			beyond: func() (n, kept int64, err error) {
				n, err = jobsBeyond(ctx, db, queue, r)
				return n, 0, err
			},
			set: func() error { return byName(db, queue).SetRetention(ctx, r) },
		}, err
	})
}

func (a *app) showQueueRetention(ctx context.Context, db *honker.DB, queue string) error {
	a.noteUnknown(ctx, db, queue)
	r, err := byName(db, queue).Retention(ctx)
	if err != nil {
		return err
	}
	return one(a, queueRetentionView, queueRetention{Queue: queue, Retention: r})
}

func (a *app) streamRetention() *cobra.Command {
	b := bounds{count: "count", age: "age"}
	flags := retaining{all: []*bounds{&b}}
	cmd := &cobra.Command{
		Use:        "retention TOPIC",
		SuggestFor: []string{"keep", "retain"},
		Short:      "Show or set the retention of a topic",
		Long: `retention shows how many events a topic keeps, by default all. With flags it sets the given bounds, and keeps the others.
0 removes a bound, and --none removes both. An event outside either bound is deleted by maintenance once all consumers and
groups have read it. If that would delete more than one event, retention asks first.`,
		Example: `  honker stream retention orders --age 7d --count 1000000
  honker stream retention orders --age 1d --dry-run`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeTopic,
	}
	flags.addTo(cmd)
	b.addTo(cmd, "events")
	return a.sets(cmd, &flags, topicRetentionView, a.showTopicRetention, func(ctx context.Context, db *honker.DB, topic string) (retained, error) {
		was, err := onTopic(db, topic).Retention(ctx)
		if flags.none {
			was = honker.Retention{}
		}
		r := b.over(cmd, was)
		return retained{
			what:   "event",
			beyond: func() (n, kept int64, err error) { return a.eventsBeyond(ctx, db, topic, r) },
			set:    func() error { return onTopic(db, topic).SetRetention(ctx, r) },
		}, err
	})
}

func (a *app) showTopicRetention(ctx context.Context, db *honker.DB, topic string) error {
	r, err := onTopic(db, topic).Retention(ctx)
	if err != nil {
		return err
	}
	return one(a, topicRetentionView, topicRetention{Topic: topic, Retention: r})
}

// retained is a retention to be set.
type retained struct {
	what   string                            // the noun for deleted rows
	beyond func() (n, kept int64, err error) // numbers of rows to be deleted, and of rows that a reader keeps
	set    func() error
}

// sets makes cmd set and show the retention of its argument. Without flags, cmd only shows it. show prints table.
func (a *app) sets(cmd *cobra.Command, flags *retaining, table headed, show func(context.Context, *honker.DB, string) error,
	merge func(context.Context, *honker.DB, string) (retained, error)) *cobra.Command {
	a.prints(cmd, table, outcomeView)
	return a.does(cmd, func(ctx context.Context, args []string) error {
		named, err := flags.named(cmd)
		if err != nil {
			return err
		}
		if _, err := a.chosenOf(table); err != nil && !flags.dryRun { // fail before the retention is set
			return err
		}
		use := a.change
		if !named || flags.dryRun {
			use = a.look
		}
		return use(ctx, func(db *honker.DB) error {
			if !named {
				return show(ctx, db, args[0])
			}
			r, err := merge(ctx, db, args[0])
			if err != nil {
				return err
			}
			if err := a.retain(ctx, db, r, flags.changing); err != nil || flags.dryRun {
				return err
			}
			return show(ctx, db, args[0])
		})
	})
}

// retain sets a retention. It first counts the rows to be deleted, and asks for confirmation if there is more than one.
func (a *app) retain(ctx context.Context, db *honker.DB, r retained, c changing) error {
	if c.dryRun || !c.yes {
		n, kept, err := r.beyond()
		switch {
		case err != nil:
			return err
		case c.dryRun:
			return a.wouldDo(verb{name: "delete", what: r.what}, &admin.Report{Matched: n, Left: kept})
		case n > 1:
			err = a.confirm(ctx, fmt.Sprintf("delete %s at the next maintenance?", plural(n, r.what)))
		}
		if err != nil {
			return err
		}
	}
	if err := r.set(); err != nil {
		return err
	}
	leaders, err := admin.Leaders(ctx, db)
	if err == nil && leaders.Maintenance == nil {
		a.note("no process maintains the file at the moment: %s", a.command("maintain"))
	}
	return err
}

// jobsBeyond counts the jobs in a queue that r doesn't keep. The count includes dead jobs that will be kept because
// other jobs are waiting for them.
func jobsBeyond(ctx context.Context, db *honker.DB, queue string, r honker.QueueRetention) (int64, error) {
	var done, dead []time.Time
	f := admin.JobFilter{Queues: []string{queue}, Phases: []honker.Phase{honker.PhaseDone, honker.PhaseDead}}
	for job, err := range admin.EachJob(ctx, db, f, &admin.PageOptions{Limit: pageSize}) {
		switch {
		case err != nil:
			return 0, err
		case job.State == honker.StateDone:
			done = append(done, job.DoneAt)
		default:
			dead = append(dead, job.DiedAt)
		}
	}
	doneBeyond := int64(len(done)) // without a limit, no done jobs are kept
	if r.Done != (honker.Retention{}) {
		doneBeyond = beyond(done, r.Done)
	}
	return doneBeyond + beyond(dead, r.Dead), nil
}

// eventsBeyond counts the events that the next maintenance will delete if the topic has the retention r, and the events
// that are kept until a reader has seen them. It names that reader in a note.
func (a *app) eventsBeyond(ctx context.Context, db *honker.DB, topic string, r honker.Retention) (n, kept int64, err error) {
	p, err := admin.PreviewRetention(ctx, db, topic, r)
	if err != nil {
		return 0, 0, err
	}
	if p.Kept > 0 {
		a.note("%s beyond the retention are kept for %s: %s", plural(p.Kept, "event"), clean(p.PinnedBy), strings.Join(a.commands(p.Actions), ", or "))
	}
	return p.Deletes, p.Kept, nil
}

// beyond counts the times that are outside r. The file stores times in whole seconds, so the age is rounded up to a
// whole second.
func beyond(at []time.Time, r honker.Retention) (n int64) {
	slices.SortFunc(at, func(x, y time.Time) int { return y.Compare(x) })
	age := (r.MaxAge + time.Second - 1).Truncate(time.Second)
	oldest := time.Unix(time.Now().Unix(), 0).Add(-age)
	for i, t := range at {
		if r.MaxCount > 0 && int64(i) >= r.MaxCount || r.MaxAge > 0 && t.Before(oldest) {
			n++
		}
	}
	return n
}
