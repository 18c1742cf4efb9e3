package main

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
)

var batchView = view[admin.BatchInfo]{
	columns: []column[admin.BatchInfo]{
		{"id", func(b admin.BatchInfo) cell { return id(b.ID) }},
		{"name", func(b admin.BatchInfo) cell { return text(b.Name) }},
		{"open", func(b admin.BatchInfo) cell { return truth(b.Open) }},
		{"total", func(b admin.BatchInfo) cell { return bound(b.Total) }},
		{"waiting", func(b admin.BatchInfo) cell { return bound(b.Waiting) }},
		{"running", func(b admin.BatchInfo) cell { return bound(b.Running) }},
		{"done", func(b admin.BatchInfo) cell { return bound(b.Done) }},
		{"dead", func(b admin.BatchInfo) cell { return bound(b.Dead).in(deadColor(b.Dead)) }},
		{"created_at", func(b admin.BatchInfo) cell { return when(b.CreatedAt) }},
		{"done_at", func(b admin.BatchInfo) cell { return when(b.DoneAt) }},
	},
	name:  func(b admin.BatchInfo) string { return strconv.FormatInt(b.ID, 10) },
	spare: []string{"open", "created_at"},
}

func (a *app) batches() *cobra.Command {
	limit, after := 50, ""
	var order admin.Order
	cmd := &cobra.Command{
		Use:   "batches",
		Short: "List the batches of jobs and their progress",
		Long: `batches lists the batches of jobs, newest first unless --sort is given, with the number of their members and the outcomes.
An open batch can still get members. To list the members of a batch, use honker jobs --batch.`,
		GroupID: groupLook,
		Args:    cobra.NoArgs,
	}
	cmd.Flags().IntVar(&limit, "limit", limit, "list at most `n`, from 1 to 1000")
	cmd.Flags().StringVar(&after, "after", "", "continue after this `cursor`, printed at the end of the previous list")
	addSort(cmd, &order, admin.NewestFirst, admin.OldestFirst)
	a.prints(cmd, batchView)
	return a.does(cmd, func(ctx context.Context, _ []string) error {
		if limit < 1 || limit > pageSize {
			return usage("", "--limit %d is not between 1 and %d", limit, pageSize)
		}
		return a.look(ctx, func(db *honker.DB) error {
			page, err := admin.Batches(ctx, db, &admin.PageOptions{Order: order, After: admin.Cursor(after), Limit: limit})
			if err != nil {
				return err
			}
			return a.listBatches(page)
		})
	})
}

func (a *app) listBatches(page *admin.BatchPage) error {
	l, err := newPage(a, batchView, "batches")
	if err != nil {
		return err
	}
	for _, batch := range page.Batches {
		if err := l.add(batch); err != nil {
			return err
		}
	}
	return l.closePage("batches", string(page.Next))
}
