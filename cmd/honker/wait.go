package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
)

func (a *app) jobWait() *cobra.Command {
	var most time.Duration
	cmd := &cobra.Command{
		Use:   "wait JOB",
		Short: "Wait for the end of a job, and print its result",
		Long: `wait waits for the end of a job, and prints its result as JSON. The exit code is 0 if the job was done. For a job that was
done without a result, this is known only while its queue retains done jobs. The exit code is 1 if the job is dead, is gone
without a result, or has not ended within --for.`,
		Example: `  id=$(honker enqueue thumbnails '{"image": 17}' -o name)
  honker job wait "$id" --for 1m`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeJob,
		Annotations:       map[string]string{nameless: "yes"},
	}
	cmd.Flags().Var(spanFlag{&most}, "for", "wait for at most this span; default: no limit")
	return a.does(cmd, func(ctx context.Context, args []string) error {
		ids, err := idsOf(args)
		if err != nil {
			return err
		}
		return a.watch(ctx, func(db *honker.DB) error { return a.waitFor(ctx, db, ids[0], most) })
	})
}

// waitFor waits for the result of a job and prints it.
func (a *app) waitFor(ctx context.Context, db *honker.DB, id int64, most time.Duration) error {
	until := ctx
	if most > 0 {
		var stop context.CancelFunc
		until, stop = context.WithTimeout(ctx, most)
		defer stop()
	}
	result, err := honker.WaitResult[json.RawMessage](until, db, id)
	var died *honker.JobFailedError
	show := a.command("job", "show", strconv.FormatInt(id, 10))
	switch {
	case err == nil:
		_, err := fmt.Fprintln(a.out, string(printable(result)))
		return err
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
		return &coded{code: codeNo, err: fmt.Errorf("job %d has not ended within %s", id, admin.FormatSpan(most)), try: show}
	case errors.As(err, &died):
		return &coded{code: codeNo, err: fmt.Errorf("job %d is dead, after %s: %s", id, plural(int64(died.Attempts), "attempt"), died.LastError), try: show}
	case errors.Is(err, honker.ErrNotFound):
		return a.ended(ctx, db, id)
	}
	return err
}

// ended reports how a job without a result ended. If the job is retained by its queue, it completed.
func (a *app) ended(ctx context.Context, db *honker.DB, id int64) error {
	job, err := db.Job(ctx, id)
	switch {
	case err == nil && job.State == honker.StateDone:
		a.note("job %d was done, without a result", id)
		return nil
	case err != nil && !errors.Is(err, honker.ErrNotFound):
		return err
	}
	return &coded{code: codeNo, err: fmt.Errorf("no job %d: it was done without a result, was cancelled, or never existed", id), try: a.command("jobs")}
}
