package main

import (
	"context"
	"fmt"
	"iter"
	"reflect"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
)

// happened describes the current state of an object that was changed by a commit. Exactly one of the last four fields
// is set, or none if the object was removed.
type happened struct {
	At       time.Time
	Kind     string // "queue", "stream", "schedule" or "lock"
	Name     string
	Queue    *honker.QueueStats
	Stream   *admin.TopicInfo
	Schedule *schedule
	Lock     *admin.LockInfo
}

var happenedView = view[happened]{
	columns: []column[happened]{
		{"at", func(h happened) cell { return text(h.At.UTC().Format("2006-01-02T15:04:05.000Z")) }},
		{"kind", func(h happened) cell { return text(h.Kind) }},
		{"name", func(h happened) cell { return text(h.Name) }},
		{"now", func(h happened) cell { return text(h.now()) }},
	},
	name: func(h happened) string { return h.Name },
}

// now describes the current state in a few words.
func (h happened) now() string {
	switch {
	case h.Queue != nil:
		return queueWords(*h.Queue)
	case h.Stream != nil:
		if h.Stream.Events.More {
			return fmt.Sprint("head ", h.Stream.Head)
		}
		return fmt.Sprintf("head %d, %v events", h.Stream.Head, h.Stream.Events)
	case h.Schedule != nil:
		return "next " + h.Schedule.NextFireAt.UTC().Format(time.RFC3339)
	case h.Lock != nil:
		return "held by " + h.Lock.Owner
	}
	return "gone"
}

func queueWords(q honker.QueueStats) string {
	var parts []string
	for _, c := range queueView.columns[1:8] {
		if shown := c.cell(q); shown.human != "-" {
			parts = append(parts, c.name+" "+shown.human)
		}
	}
	if q.Pause != nil {
		parts = append(parts, "paused")
	}
	if parts == nil {
		return "empty"
	}
	return strings.Join(parts, ", ")
}

const (
	// betweenLooks is the minimum time between reads of the database while commits keep coming.
	betweenLooks = 100 * time.Millisecond

	// withoutNotice is the maximum time between reads of a server. A server tells only of commits that may wake a process, and
	// those of locks seldom do.
	withoutNotice = time.Second
)

func (a *app) events() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "events",
		Short: "Print changes to queues, streams, schedules and locks as they happen",
		Long: `events prints a line with the current state of each queue, stream, schedule and lock that a commit of any process has
changed. Commits in quick succession share lines. events runs until it is interrupted, and reads a file only after
commits, a server also each second. It prints a message to standard error when it has started.`,
		Example: `  honker events -o jsonl | jq 'select(.kind == "queue" and .queue.dead > 0)'`,
		GroupID: groupLook,
		Args:    cobra.NoArgs,
	}
	a.prints(cmd, happenedView)
	return a.does(cmd, func(ctx context.Context, _ []string) error {
		f, err := newFeed(a, happenedView)
		if err != nil {
			return err
		}
		return a.watch(ctx, func(db *honker.DB) error { return a.follow(ctx, db, f) })
	})
}

// follow prints the differences after each commit.
func (a *app) follow(ctx context.Context, db *honker.DB, f *feed[happened]) error {
	var before map[string]happened
	for _, err := range updates(ctx, db) {
		if err != nil {
			return err
		}
		after, order, err := everything(ctx, db)
		if err != nil {
			return unlessEnded(ctx, err)
		}
		if before == nil {
			a.note("following")
		} else if err := printChanged(f, before, after, order); err != nil {
			return err
		}
		before = after
		pause(ctx, betweenLooks)
	}
	return nil
}

// updates is db.Updates, which on a server also yields each second.
func updates(ctx context.Context, db *honker.DB) iter.Seq2[struct{}, error] {
	if admin.IsFile(db) {
		return db.Updates(ctx)
	}
	return func(yield func(struct{}, error) bool) {
		for ctx.Err() == nil {
			round, stop := context.WithTimeout(ctx, withoutNotice)
			for is, err := range db.Updates(round) { // yields at once
				if !yield(is, err) || err != nil {
					stop()
					return
				}
			}
			stop()
		}
	}
}

// unlessEnded returns nil if ctx has ended, and err otherwise. A command that follows the file
// normally ends by being cancelled.
func unlessEnded(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	wait := time.NewTimer(d)
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-ctx.Done():
	}
}

// everything returns all objects in the file by key, and the keys in printing order.
func everything(ctx context.Context, db *honker.DB) (all map[string]happened, order []string, err error) {
	all = map[string]happened{}
	add := func(h happened) {
		key := h.Kind + " " + h.Name
		all[key] = h
		order = append(order, key)
	}
	queues, err := admin.Queues(ctx, db)
	for _, q := range queues {
		q.AsOf = time.Time{}
		add(happened{Kind: "queue", Name: q.Queue, Queue: &q})
	}
	if err != nil {
		return nil, nil, err
	}
	topics, err := admin.Topics(ctx, db)
	for _, t := range topics {
		t.Published = 0
		if t.Events.More {
			t.Events.N = 0 // a count that goes on is not an event
		}
		add(happened{Kind: "stream", Name: t.Name, Stream: &t})
	}
	if err != nil {
		return nil, nil, err
	}
	schedules, err := admin.Schedules(ctx, db)
	for _, s := range schedules {
		s := scheduleOf(s)
		add(happened{Kind: "schedule", Name: s.Name, Schedule: &s})
	}
	if err != nil {
		return nil, nil, err
	}
	locks, err := admin.Locks(ctx, db)
	for _, l := range locks {
		l.ExpiresAt = time.Time{} // a renewal is not an event
		add(happened{Kind: "lock", Name: l.Name, Lock: &l})
	}
	return all, order, err
}

// printChanged prints the objects that were changed, added or removed.
func printChanged(f *feed[happened], before, after map[string]happened, order []string) error {
	at := time.Now()
	for _, key := range order {
		h := after[key]
		if was, there := before[key]; there && reflect.DeepEqual(was, h) {
			continue
		}
		h.At = at
		if err := f.add(h); err != nil {
			return err
		}
	}
	for key, was := range before {
		if _, there := after[key]; there {
			continue
		}
		if err := f.add(happened{At: at, Kind: was.Kind, Name: was.Name}); err != nil {
			return err
		}
	}
	return nil
}
