package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
)

var topicView = view[admin.TopicInfo]{
	columns: []column[admin.TopicInfo]{
		{"name", func(t admin.TopicInfo) cell { return text(t.Name) }},
		{"events", func(t admin.TopicInfo) cell { return count(t.Events) }},
		{"published", func(t admin.TopicInfo) cell { return eventRate(t.Published, true) }},
		{"first", func(t admin.TopicInfo) cell { return id(t.First) }},
		{"head", func(t admin.TopicInfo) cell { return id(t.Head) }},
		{"last_at", func(t admin.TopicInfo) cell { return when(t.LastAt) }},
		{"retention", func(t admin.TopicInfo) cell { return dashed(retentionText(t.Retention, "event")) }},
	},
	name: func(t admin.TopicInfo) string { return t.Name },
}

// onTopic returns a stream with payloads of any type.
func onTopic(db *honker.DB, topic string) *honker.Stream[json.RawMessage] {
	return honker.NewStream[json.RawMessage](db, topic, nil)
}

func (a *app) streams() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "streams",
		Short:   "List topics, with the number and the retention of their events",
		GroupID: groupLook,
		Args:    cobra.NoArgs,
	}
	a.prints(cmd, topicView)
	return a.does(cmd, func(ctx context.Context, _ []string) error {
		return a.look(ctx, func(db *honker.DB) error {
			topics, err := admin.Topics(ctx, db)
			if err != nil {
				return err
			}
			return many(a, topicView, topics, "topics with events or a retention")
		})
	})
}

func (a *app) stream() *cobra.Command {
	return parent("stream", "Show, read, follow and publish to a stream, and set its retention", groupChange,
		a.streamShow(), a.streamRead(), a.streamTail(), a.streamPublish(), a.streamRetention())
}

func (a *app) streamShow() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "show TOPIC",
		Short:             "Show the number and the retention of the events of a topic",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeTopic,
	}
	a.prints(cmd, topicView)
	return a.does(cmd, func(ctx context.Context, args []string) error {
		return a.look(ctx, func(db *honker.DB) error {
			topics, err := admin.Topics(ctx, db)
			if err != nil {
				return err
			}
			for _, t := range topics {
				if t.Name == args[0] {
					return one(a, topicView, t)
				}
			}
			return &coded{code: codeNo, err: fmt.Errorf("no events and no retention of topic %q", args[0]), try: a.command("streams")}
		})
	})
}

// published is an event that was added.
type published struct {
	Offset int64
	Topic  string
	Key    string
}

var publishedView = view[published]{
	columns: []column[published]{
		{"offset", func(p published) cell { return id(p.Offset) }},
		{"topic", func(p published) cell { return text(p.Topic) }},
		{"key", func(p published) cell { return text(p.Key) }},
	},
	name: func(p published) string { return fmt.Sprint(p.Offset) },
}

func (a *app) streamPublish() *cobra.Command {
	var key string
	cmd := &cobra.Command{
		Use:   "publish TOPIC JSON|-",
		Short: "Add an event, or with - an event for each line of standard input",
		Long: `publish adds an event to a topic. With - it adds an event for each line of standard input. The lines are JSON, and are
added in transactions of up to 1,000. If a line is not JSON, its transaction is rolled back, and the error names the line.`,
		Example: `  honker stream publish orders '{"id": 17}' --key created
  honker stream publish clicks - < clicks.jsonl`,
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: a.completeTopic,
	}
	cmd.Flags().StringVar(&key, "key", "", "`key` of the event, or of all events")
	a.prints(cmd, publishedView)
	return a.does(cmd, func(ctx context.Context, args []string) error {
		var opts []honker.PublishOption
		if cmd.Flags().Changed("key") {
			opts = append(opts, honker.EventKey(key))
		}
		return a.change(ctx, func(db *honker.DB) error {
			p := &publishing{app: a, stream: onTopic(db, args[0]), key: key, opts: opts}
			if args[1] == "-" {
				return p.lines(ctx)
			}
			return p.one(ctx, args[1])
		})
	})
}

// publishing is the state of a running publish command.
type publishing struct {
	app    *app
	stream *honker.Stream[json.RawMessage]
	key    string
	opts   []honker.PublishOption
}

func (p *publishing) one(ctx context.Context, data string) error {
	if !json.Valid([]byte(data)) {
		return usage(`honker stream publish `+shellWord(p.stream.Name())+` '{"id": 17}'`, "%q is not JSON", data)
	}
	offset, err := p.stream.Publish(ctx, json.RawMessage(data), p.opts...)
	if err != nil {
		return err
	}
	return one(p.app, publishedView, published{Offset: offset, Topic: p.stream.Name(), Key: p.key})
}

func (p *publishing) lines(ctx context.Context) error {
	l, err := newList(p.app, publishedView)
	if err != nil {
		return err
	}
	err = p.app.eachChunk(ctx, func(chunk []json.RawMessage) error {
		first, _, err := p.stream.PublishMany(ctx, chunk, p.opts...)
		if err != nil {
			return err
		}
		for n := range chunk { // consecutive, unless the application's triggers add events
			if err := l.add(published{Offset: first + int64(n), Topic: p.stream.Name(), Key: p.key}); err != nil {
				return err
			}
		}
		return p.app.out.Flush() // so that a program that reads the output can already act on these events
	})
	if err != nil {
		return stopped(err, "published", l.n, "event")
	}
	return l.close("lines")
}

// completeTopic completes a topic as the first argument.
func (a *app) completeTopic(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.complete(cmd, func(ctx context.Context, db *honker.DB) ([]string, error) {
		topics, err := admin.Topics(ctx, db)
		return words(topics, func(t admin.TopicInfo) string { return t.Name }), err
	})
}
