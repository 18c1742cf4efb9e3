package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/honker-go/honker"
)

// event is a stream event in its stored form.
type event struct {
	Offset    int64
	Topic     string
	Key       string
	CreatedAt time.Time
	Payload   json.RawMessage
}

func eventOf(e *honker.Event[json.RawMessage]) event {
	return event{Offset: e.Offset, Topic: e.Topic, Key: e.Key, CreatedAt: e.CreatedAt, Payload: e.Payload}
}

var eventView = view[event]{
	columns: []column[event]{
		{"offset", func(e event) cell { return id(e.Offset) }},
		{"topic", func(e event) cell { return text(e.Topic) }},
		{"key", func(e event) cell { return text(e.Key) }},
		{"created_at", func(e event) cell { return when(e.CreatedAt) }},
		{"payload", func(e event) cell { return long(string(e.Payload)) }},
	},
	name: func(e event) string { return fmt.Sprint(e.Offset) },
}

// keyFilter is the value of --key: a key, or a prefix followed by *.
type keyFilter string

func (k keyFilter) matches(key string) bool {
	if begins, ok := strings.CutSuffix(string(k), "*"); ok {
		return strings.HasPrefix(key, begins)
	}
	return k == "" || string(k) == key
}

func (k keyFilter) filter() honker.Filter {
	begins, ok := strings.CutSuffix(string(k), "*")
	switch {
	case k == "" || k == "*":
		return nil
	case ok:
		return honker.KeyPrefix(begins)
	}
	return honker.KeyIs(string(k))
}

const keyUsage = "print only events with this `key`, or with a prefix: 'created*'"

func (a *app) streamRead() *cobra.Command {
	var key string
	var after int64
	limit := 50
	cmd := &cobra.Command{
		Use:   "read TOPIC",
		Short: "Print the events of a topic or of a pattern such as 'orders:*'",
		Example: `  honker stream read orders --after 1200 --limit 100
  honker stream read 'orders:*' --limit 0 -o jsonl`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeTopic,
	}
	cmd.Flags().Int64Var(&after, "after", 0, "print only events after this `offset`")
	cmd.Flags().IntVar(&limit, "limit", limit, "list at most `n`; 0 for all")
	cmd.Flags().StringVar(&key, "key", "", keyUsage)
	a.prints(cmd, eventView)
	return a.does(cmd, func(ctx context.Context, args []string) error {
		if limit < 0 {
			return usage("", "--limit %d is negative", limit)
		}
		return a.look(ctx, func(db *honker.DB) error {
			return a.readEvents(ctx, onTopic(db, args[0]), after, limit, keyFilter(key))
		})
	})
}

func (a *app) readEvents(ctx context.Context, s *honker.Stream[json.RawMessage], after int64, limit int, key keyFilter) error {
	l, err := newList(a, eventView)
	if err != nil {
		return err
	}
	more := false
	for e, err := range s.Read(ctx, after) {
		if e == nil {
			return err
		}
		if !key.matches(e.Key) {
			continue
		}
		if more = limit > 0 && l.n == limit; more {
			break
		}
		if err := l.add(eventOf(e)); err != nil { // an event that cannot be decoded is shown in its stored form
			return err
		}
		after = e.Offset
	}
	if err := l.close("such events"); err != nil {
		return err
	}
	if more {
		a.note("there are more: the same with --after %d", after)
	}
	return nil
}

func (a *app) streamTail() *cobra.Command {
	var key string
	last, follow := 10, false
	cmd := &cobra.Command{
		Use:   "tail TOPIC",
		Short: "Print the last events of a topic, or with --follow also new events",
		Long: `tail prints the last events of a topic, or of all topics that match a pattern such as 'orders:*'. With --follow it also
prints new events of any process as they are committed, until it is interrupted. It is not a consumer and saves no offset.`,
		Example: `  honker stream tail orders --follow --key 'created*'
  honker stream tail orders -n 0 --follow -o jsonl`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeTopic,
	}
	cmd.Flags().IntVarP(&last, "lines", "n", last, "print the last `n` events")
	cmd.Flags().BoolVar(&follow, "follow", false, "also print new events as they are committed")
	cmd.Flags().StringVar(&key, "key", "", keyUsage)
	a.prints(cmd, eventView)
	return a.does(cmd, func(ctx context.Context, args []string) error {
		if last < 0 {
			return usage("", "--lines %d is negative", last)
		}
		if !follow {
			return a.look(ctx, func(db *honker.DB) error { return a.printLast(ctx, onTopic(db, args[0]), last, keyFilter(key)) })
		}
		f, err := newFeed(a, eventView)
		if err != nil {
			return err
		}
		return a.watch(ctx, func(db *honker.DB) error { return follows(ctx, onTopic(db, args[0]), f, last, keyFilter(key)) })
	})
}

func (a *app) printLast(ctx context.Context, s *honker.Stream[json.RawMessage], n int, key keyFilter) error {
	events, _, err := lastEvents(ctx, s, n, key)
	if err != nil {
		return err
	}
	return many(a, eventView, events, "such events")
}

// follows prints the last n events, and then new events until ctx ends.
func follows(ctx context.Context, s *honker.Stream[json.RawMessage], f *feed[event], n int, key keyFilter) error {
	events, head, err := lastEvents(ctx, s, n, key)
	if err != nil {
		return err
	}
	for _, e := range events {
		if err := f.add(e); err != nil {
			return err
		}
	}
	for e, err := range s.Tail(ctx, honker.Offset(head), key.filter()) {
		if e == nil {
			return err
		}
		if err := f.add(eventOf(e)); err != nil {
			return err
		}
	}
	return nil
}

// lastEvents returns the last n events, and the offset up to which all events were seen. All topics
// share the same offsets, so lastEvents doubles the range until it has found enough events.
func lastEvents(ctx context.Context, s *honker.Stream[json.RawMessage], n int, key keyFilter) ([]event, int64, error) {
	head, err := s.Head(ctx)
	if err != nil || n == 0 {
		return nil, head, err
	}
	for back := int64(n); ; back *= 2 {
		after := max(0, head-back)
		events, seen, err := newest(ctx, s, after, n, key)
		if err != nil || len(events) == n || after == 0 {
			return events, max(head, seen), err
		}
	}
}

// newest returns the last n events after an offset, and the offset of the last event seen.
func newest(ctx context.Context, s *honker.Stream[json.RawMessage], after int64, n int, key keyFilter) (events []event, seen int64, err error) {
	for e, err := range s.Read(ctx, after) {
		if e == nil {
			return nil, 0, err
		}
		seen = e.Offset
		if !key.matches(e.Key) {
			continue
		}
		if events = append(events, eventOf(e)); len(events) > n {
			events = events[1:]
		}
	}
	return events, seen, nil
}
