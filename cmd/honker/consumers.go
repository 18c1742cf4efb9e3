package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
)

var consumerView = view[admin.ConsumerState]{
	columns: []column[admin.ConsumerState]{
		{"topic", func(c admin.ConsumerState) cell { return text(c.Topic) }},
		{"name", func(c admin.ConsumerState) cell { return text(c.Name) }},
		{"offset", func(c admin.ConsumerState) cell { return id(c.Offset) }},
		{"lag", func(c admin.ConsumerState) cell { return lagCell(c.Lag, c.LagMax) }},
		{"behind", func(c admin.ConsumerState) cell { return waiting(c.Behind) }},
		{"published", func(c admin.ConsumerState) cell { return eventRate(c.Published, true) }},
		{"read", func(c admin.ConsumerState) cell { return eventRate(c.Read, !c.ReadSince.IsZero()) }},
		{"catch_up", catchUpCell},
		{"last_ack", func(c admin.ConsumerState) cell { return when(c.LastAck) }},
		{"created_at", func(c admin.ConsumerState) cell { return when(c.CreatedAt) }},
	},
	name:  func(c admin.ConsumerState) string { return c.Name },
	spare: []string{"created_at", "last_ack", "published", "offset"},
}

// lagCell shows a lag, which is between two bounds if it was not counted to the end.
func lagCell(lag honker.Count, most int64) cell {
	c := count(lag)
	if lag.More && most > lag.N {
		c.human = honker.Count{N: lag.N}.String() + "-" + honker.Count{N: most}.String()
	}
	return c
}

// waiting shows the time since the first unread event was published.
func waiting(since time.Time) cell {
	c := when(since)
	if !since.IsZero() {
		c.human, c.right = admin.FormatAge(time.Since(since)), true
	}
	return c
}

// eventRate shows a rate of events, or nothing if it is unknown.
func eventRate(rate float64, known bool) cell {
	if !known {
		return cell{human: "-", right: true}
	}
	s := strconv.FormatFloat(rate, 'g', 3, 64)
	if rate >= 100 {
		s = strconv.FormatFloat(rate, 'f', 0, 64)
	}
	return cell{human: s + "/s", raw: strconv.FormatFloat(rate, 'g', -1, 64), right: true}
}

func catchUpCell(c admin.ConsumerState) cell {
	switch {
	case c.FallsBehind:
		return text("never").in(yellow)
	case c.CatchUp == 0:
		return cell{human: "-"}
	}
	return cell{human: "in " + admin.FormatAge(c.CatchUp), raw: admin.FormatSpan(c.CatchUp)}
}

func (a *app) consumers() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "consumers [TOPIC]",
		Short: "List consumers of events and their lag",
		Long: `consumers lists the consumers of a topic, or of all topics, with the number of unread events and the time that the first of
them has waited; the events per second published in the last ten minutes, and read in the last ten to twenty; and the time in which
the consumer catches up at this pace. A lag such as 1,000-9,000 was not counted to the end, and is between both. A consumer that is no longer used keeps events from being deleted. Remove it with
honker consumer rm.`,
		GroupID:           groupLook,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: a.completeConsumer,
	}
	a.prints(cmd, consumerView)
	return a.does(cmd, func(ctx context.Context, args []string) error {
		return a.look(ctx, func(db *honker.DB) error {
			all, err := admin.Consumers(ctx, db)
			if err != nil {
				return err
			}
			all = slices.DeleteFunc(all, func(c admin.ConsumerState) bool { return len(args) > 0 && c.Topic != args[0] })
			return many(a, consumerView, all, "consumers")
		})
	})
}

func (a *app) consumer() *cobra.Command {
	return parent("consumer", "Show, move and remove a consumer of events", groupChange,
		a.consumerShow(), a.consumerSeek(), a.consumerRm())
}

func (a *app) consumerShow() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "show TOPIC CONSUMER",
		Short:             "Show the position and lag of a consumer",
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: a.completeConsumer,
	}
	a.prints(cmd, consumerView)
	return a.does(cmd, func(ctx context.Context, args []string) error {
		return a.look(ctx, func(db *honker.DB) error { return a.showConsumer(ctx, db, args[0], args[1]) })
	})
}

func (a *app) showConsumer(ctx context.Context, db *honker.DB, topic, name string) error {
	all, err := admin.Consumers(ctx, db)
	if err != nil {
		return err
	}
	for _, c := range all {
		if c.Topic == topic && c.Name == name {
			return one(a, consumerView, c)
		}
	}
	return a.noConsumer(topic, name)
}

func (a *app) noConsumer(topic, name string) error {
	return &coded{code: codeNo, err: fmt.Errorf("no consumer %q of topic %q", name, topic), try: a.command("consumers")}
}

func (a *app) consumerSeek() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "seek TOPIC CONSUMER beginning|end|OFFSET|TIME",
		Short: "Move a consumer to another position",
		Long: `seek moves a consumer forward or back: to the beginning, to the end, after an offset, or to the first event since a time.
A time is given as 2026-11-23T09:00:00Z, or as 2h for two hours ago. Stop the consumer first: a running program keeps its own
position and overwrites the new one. Events deleted by retention do not come back: seek then prints the last deleted offset.`,
		Example: `  honker consumer seek orders shipping 1200
  honker consumer seek orders shipping 2h`,
		Args:              cobra.ExactArgs(3),
		ValidArgsFunction: a.completeConsumer,
	}
	a.prints(cmd, consumerView)
	return a.does(cmd, func(ctx context.Context, args []string) error {
		to, err := place(args[2])
		if err != nil {
			return err
		}
		return a.change(ctx, func(db *honker.DB) error {
			was, err := onTopic(db, args[0]).Offset(ctx, args[1])
			if err != nil {
				return err
			}
			if err := onTopic(db, args[0]).Seek(ctx, args[1], to); err != nil {
				return missing(err, a.command("consumers"))
			}
			if err := a.noteMoved(ctx, db, args[0], args[1], was); err != nil {
				return err
			}
			if err := a.noteGone(ctx, db, args[0], args[1]); err != nil {
				return err
			}
			return a.showConsumer(ctx, db, args[0], args[1])
		})
	})
}

// noteMoved tells from where to where a consumer has moved.
func (a *app) noteMoved(ctx context.Context, db *honker.DB, topic, consumer string, was int64) error {
	is, err := onTopic(db, topic).Offset(ctx, consumer)
	if err != nil || is == was {
		return err
	}
	does := "does not read the events in between"
	if is < was {
		does = "reads the events in between again"
	}
	a.note("%s moved from offset %d to %d, and %s", consumer, was, is, does)
	return nil
}

// noteGone prints a note if retention has deleted events after the consumer's position.
func (a *app) noteGone(ctx context.Context, db *honker.DB, topic, consumer string) error {
	s := onTopic(db, topic)
	gone, err := s.Compacted(ctx)
	if err != nil || gone == 0 {
		return err
	}
	offset, err := s.Offset(ctx, consumer)
	if err == nil && offset < gone {
		a.note("events up to offset %d were deleted by retention; %s continues with the remaining events", gone, clean(consumer))
	}
	return err
}

// place parses the position at which a consumer continues.
func place(s string) (honker.From, error) {
	switch s {
	case "beginning":
		return honker.Beginning, nil
	case "end":
		return honker.End, nil
	}
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		return honker.Offset(n), nil
	}
	var t time.Time
	if err := ago(&t).Set(s); err != nil {
		return honker.From{}, usage("", "%q is not a position: it must be beginning, end or an offset, or %v", s, err)
	}
	return honker.Since(t), nil
}

// removed reports the name of a removed consumer or group.
type removed struct {
	Topic string
	Name  string
}

var removedView = view[removed]{
	columns: []column[removed]{
		{"topic", func(r removed) cell { return text(r.Topic) }},
		{"name", func(r removed) cell { return text(r.Name) }},
	},
	name: func(r removed) string { return r.Name },
}

func (a *app) consumerRm() *cobra.Command {
	cmd := &cobra.Command{
		Use:        "rm TOPIC CONSUMER",
		SuggestFor: []string{"delete", "remove"},
		Short:      "Remove a consumer and its position",
		Long: `rm removes a consumer and its position, so that it no longer keeps events from being deleted. If the consumer is used
again, it starts over.`,
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: a.completeConsumer,
	}
	a.prints(cmd, removedView)
	return a.does(cmd, func(ctx context.Context, args []string) error {
		return a.change(ctx, func(db *honker.DB) error {
			was, err := onTopic(db, args[0]).DeleteConsumer(ctx, args[1])
			switch {
			case err != nil:
				return err
			case !was:
				return a.noConsumer(args[0], args[1])
			}
			return one(a, removedView, removed{Topic: args[0], Name: args[1]})
		})
	})
}

// completeConsumer completes a topic or pattern that has consumers, and then the name of a
// consumer.
func (a *app) completeConsumer(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	return a.complete(cmd, func(ctx context.Context, db *honker.DB) ([]string, error) {
		all, err := admin.Consumers(ctx, db)
		var pairs [][2]string
		for _, c := range all {
			pairs = append(pairs, [2]string{c.Topic, c.Name})
		}
		return nextOf(args, pairs), err
	})
}

// nextOf returns the distinct first elements of pairs. If args already contains a first element,
// nextOf returns the second elements of its pairs.
func nextOf(args []string, pairs [][2]string) (offers []string) {
	if len(args) > 1 {
		return nil
	}
	seen := map[string]bool{}
	for _, p := range pairs {
		if len(args) == 1 && p[0] != args[0] {
			continue
		}
		word := p[len(args)]
		if isWord(word) && !seen[word] {
			offers = append(offers, word)
		}
		seen[word] = true
	}
	return offers
}
