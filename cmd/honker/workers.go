package main

import (
	"context"
	"slices"

	"github.com/spf13/cobra"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
)

var workerView = view[admin.WorkerInfo]{
	columns: []column[admin.WorkerInfo]{
		{"queue", func(w admin.WorkerInfo) cell { return text(w.Queue) }},
		{"id", func(w admin.WorkerInfo) cell { return text(w.ID) }},
		{"alive", func(w admin.WorkerInfo) cell { return alive(w.Alive) }},
		{"host", func(w admin.WorkerInfo) cell { return text(w.Host) }},
		{"pid", func(w admin.WorkerInfo) cell { return orDash(int64(w.PID)) }},
		{"slots", func(w admin.WorkerInfo) cell { return orDash(int64(w.Slots)) }},
		{"running", func(w admin.WorkerInfo) cell { return count(honker.Count{N: int64(w.Running)}) }},
		{"oldest", func(w admin.WorkerInfo) cell { return orDash(w.Oldest) }},
		{"since", func(w admin.WorkerInfo) cell { return when(w.Since) }},
		{"seen", func(w admin.WorkerInfo) cell { return seen(w) }},
		{"version", func(w admin.WorkerInfo) cell { return text(w.Version) }},
		{"foreign", func(w admin.WorkerInfo) cell { return truth(w.Foreign) }},
	},
	name:  func(w admin.WorkerInfo) string { return w.ID },
	spare: []string{"foreign", "version", "pid", "slots", "seen"},
}

func alive(l admin.Life) cell {
	if l == admin.Gone {
		return text(string(l)).in(red)
	}
	return text(string(l))
}

// seen shows when a worker's process last committed. People see a dash for a live worker, because an idle worker
// doesn't commit anything.
func seen(w admin.WorkerInfo) cell {
	c := when(w.Seen)
	if w.Alive == admin.Alive {
		c.human = "-"
	}
	return c
}

// orDash shows an ID. If it is 0, people see a dash.
func orDash(n int64) cell {
	if n == 0 {
		return cell{human: "-", right: true}
	}
	return id(n)
}

func (a *app) workers() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "workers [QUEUE]",
		Short: "List workers, the jobs they hold, and whether they are alive",
		Long: `workers lists the workers of each queue, or of a single queue. A worker is alive, gone (for example killed), or unknown if
it runs where this process cannot look, such as in another container.

A worker of another binding is shown as foreign. It is known only by the jobs that it holds, and not listed while it holds none.`,
		GroupID:           groupLook,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: a.completeQueue,
	}
	a.prints(cmd, workerView)
	return a.does(cmd, func(ctx context.Context, args []string) error {
		return a.look(ctx, func(db *honker.DB) error {
			if len(args) > 0 {
				a.noteUnknown(ctx, db, args[0])
			}
			all, err := admin.Workers(ctx, db)
			if err != nil {
				return err
			}
			all = slices.DeleteFunc(all, func(w admin.WorkerInfo) bool { return len(args) > 0 && w.Queue != args[0] })
			return many(a, workerView, all, "workers")
		})
	})
}
