package main

import (
	"context"
	"encoding/json"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/honker-go/honker"
)

// sent describes a message that was sent.
type sent struct {
	ID      int64
	Channel string
}

var sentView = view[sent]{
	columns: []column[sent]{
		{"id", func(s sent) cell { return id(s.ID) }},
		{"channel", func(s sent) cell { return text(s.Channel) }},
	},
	name: func(s sent) string { return strconv.FormatInt(s.ID, 10) },
}

func (a *app) notify() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "notify CHANNEL JSON",
		Short:   "Send a message to current listeners in all processes",
		Example: `  honker notify cache '{"drop": "users"}'`,
		GroupID: groupChange,
		Args:    cobra.ExactArgs(2),
	}
	a.prints(cmd, sentView)
	return a.does(cmd, func(ctx context.Context, args []string) error {
		if !json.Valid([]byte(args[1])) {
			return usage(`honker notify `+shellWord(args[0])+` '{"drop": "users"}'`, "%q is not JSON", args[1])
		}
		return a.change(ctx, func(db *honker.DB) error {
			id, err := db.Notify(ctx, args[0], json.RawMessage(args[1]))
			if err != nil {
				return err
			}
			return one(a, sentView, sent{ID: id, Channel: args[0]})
		})
	})
}

var messageView = view[honker.Notification]{
	columns: []column[honker.Notification]{
		{"id", func(n honker.Notification) cell { return id(n.ID) }},
		{"channel", func(n honker.Notification) cell { return text(n.Channel) }},
		{"created_at", func(n honker.Notification) cell { return when(n.CreatedAt) }},
		{"payload", func(n honker.Notification) cell { return long(string(n.Payload)) }},
	},
	name: func(n honker.Notification) string { return strconv.FormatInt(n.ID, 10) },
}

func (a *app) listen() *cobra.Command {
	limit := 0
	cmd := &cobra.Command{
		Use:   "listen CHANNEL...",
		Short: "Print the messages of channels as they arrive",
		Long: `listen prints each message that any process sends to the channels from now on, until it is interrupted. It prints a message
to standard error when it has started to listen.`,
		Example: `  honker listen cache -o jsonl | while read -r line; do …; done`,
		GroupID: groupLook,
		Args:    cobra.MinimumNArgs(1),
	}
	cmd.Flags().IntVar(&limit, "limit", 0, "end after `n` messages; default: do not end")
	a.prints(cmd, messageView)
	return a.does(cmd, func(ctx context.Context, args []string) error {
		f, err := newFeed(a, messageView)
		if err != nil {
			return err
		}
		return a.watch(ctx, func(db *honker.DB) error {
			l, err := db.Listen(ctx, args...)
			if err != nil {
				return err
			}
			defer l.Close()
			a.note("listening")
			for n, err := range l.All(ctx) {
				if err != nil {
					return err
				}
				if err := f.add(*n); err != nil {
					return err
				}
				if limit--; limit == 0 {
					return nil
				}
			}
			return nil
		})
	})
}
