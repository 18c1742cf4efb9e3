package main

import (
	"context"
	"encoding/json"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
)

// audited is an admin.AuditEntry with its sentence.
type audited struct {
	ID     int64
	At     time.Time
	Actor  string
	Remote string
	Verb   string
	Filter json.RawMessage
	N      int64
	Text   string
}

var auditView = view[audited]{
	columns: []column[audited]{
		{"id", func(e audited) cell { return id(e.ID) }},
		{"at", func(e audited) cell { return when(e.At) }},
		{"actor", func(e audited) cell { return text(e.Actor) }},
		{"remote", func(e audited) cell { return text(e.Remote) }},
		{"verb", func(e audited) cell { return text(e.Verb) }},
		{"n", func(e audited) cell { return number(e.N) }},
		{"text", func(e audited) cell { return long(e.Text) }},
	},
	name:  func(e audited) string { return strconv.FormatInt(e.ID, 10) },
	spare: []string{"verb", "n", "remote"},
}

func (a *app) audit() *cobra.Command {
	opts := &admin.AuditOptions{Limit: 50}
	cmd := &cobra.Command{
		Use:        "audit",
		SuggestFor: []string{"history", "changes"},
		Short:      "List the changes that operators have made",
		Long: `audit lists the changes that operators have made with this command, the dashboard or a program that names them, the newest first.
The database keeps the newest 10,000 changes. --queue and --job find changes that name the queue or job. A change of all dead jobs, for
example, names neither.`,
		Example: `  honker audit --since 1d
  honker audit --queue emails --verb requeue`,
		GroupID: groupLook,
		Args:    cobra.NoArgs,
	}
	after := ""
	flags := cmd.Flags()
	flags.StringVar(&opts.Queue, "queue", "", "changes of this `queue`")
	flags.Int64Var(&opts.Job, "job", 0, "changes of the job with this `id`")
	flags.StringVar(&opts.Verb, "verb", "", "changes by this `verb`, such as requeue or pause")
	flags.StringVar(&opts.Actor, "actor", "", "changes by this `operator`, such as ann@example")
	flags.Var(ago(&opts.Since), "since", "changes at or after this `time`, or within this span: 2h, 7d")
	flags.Var(ago(&opts.Until), "until", "changes before this `time`, or longer ago than this span")
	flags.IntVar(&opts.Limit, "limit", opts.Limit, "list at most `n`, from 1 to 1000")
	flags.StringVar(&after, "after", "", "continue after this `cursor`, printed at the end of the previous list")
	must(cmd.RegisterFlagCompletionFunc("queue", a.completeQueues))
	a.prints(cmd, auditView)
	return a.does(cmd, func(ctx context.Context, _ []string) (err error) {
		if opts.Limit < 1 || opts.Limit > pageSize {
			return usage("", "--limit %d is not between 1 and %d", opts.Limit, pageSize)
		}
		if after != "" {
			if opts.Before, err = strconv.ParseInt(after, 10, 64); err != nil || opts.Before < 1 {
				return usage("", "--after %q is not a cursor", after)
			}
		}
		return a.look(ctx, func(db *honker.DB) error {
			a.noteUnknown(ctx, db, opts.Queue)
			entries, err := admin.Audit(ctx, db, opts)
			if err != nil {
				return err
			}
			return a.listAudit(entries, opts.Limit)
		})
	})
}

func (a *app) listAudit(entries []admin.AuditEntry, limit int) error {
	l, err := newPage(a, auditView, "changes")
	if err != nil {
		return err
	}
	next := ""
	for _, e := range entries {
		row := audited{ID: e.ID, At: e.At, Actor: e.Actor, Remote: e.Remote, Verb: e.Verb, Filter: e.Filter, N: e.N, Text: e.String()}
		if err := l.add(row); err != nil {
			return err
		}
		if l.n == limit {
			next = strconv.FormatInt(e.ID, 10)
		}
	}
	return l.closePage("such changes", next)
}
