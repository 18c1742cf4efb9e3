package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/observe"
)

// Exit codes that have a special meaning when a command returns them, from sysexits.h.
const (
	exitDataErr  = 65 // EX_DATAERR: the job can never succeed
	exitTempFail = 75 // EX_TEMPFAIL: try again later, not a failure
)

const (
	maxOutput = 1 << 20         // bytes of a result
	maxErrors = 4 << 10         // bytes of an attempt's error text
	endGrace  = 5 * time.Second // between SIGTERM and SIGKILL

	drainDefault = 20 * time.Second
)

// working holds the flags of work.
type working struct {
	queue   honker.QueueOptions
	opts    honker.WorkOptions
	snooze  time.Duration
	drain   time.Duration
	once    bool
	printed *feed[observe.Settled]
}

func (a *app) work() *cobra.Command {
	w := working{snooze: time.Minute, drain: drainDefault}
	w.opts.Workers = runtime.GOMAXPROCS(0)
	w.opts.DrainTimeout = math.MaxInt64 // a claim is held until its command has ended; limitDrain ends the commands
	cmd := &cobra.Command{
		Use:   "work QUEUE -- COMMAND [ARG...]",
		Short: "Run a command for each job of a queue",
		Long: `work runs a command for each job of a queue, until it is interrupted. The command gets the stored payload on its standard
input. Its exit code settles the job:

  0      done; the output is the result, as JSON if it is valid JSON, otherwise as text
  75     retry after --snooze without using up an attempt (EX_TEMPFAIL)
  65     dead: the job can never succeed (EX_DATAERR)
  other  failed: retry with backoff, until all attempts are used up

Standard error is passed on, and its end is stored as the error of the job. The environment contains HONKER_FILE or HONKER_DSN, HONKER_QUEUE,
HONKER_JOB_ID, HONKER_ATTEMPT, HONKER_MAX_ATTEMPTS, HONKER_KEY and HONKER_RUN_AT.

SIGTERM and SIGINT start a drain: no more jobs start, and running commands may finish, for at most --drain. After that, on a
second signal, or if its job was cancelled, a command and its child processes get SIGTERM, and SIGKILL five seconds later. A
job is returned to the queue only when its command has ended, so that no other worker starts it too early.`,
		Example: `  honker work thumbnails --workers 4 -- ./thumbnail.sh
  honker work mails --once -- python3 send.py`,
		GroupID:           groupChange,
		Args:              afterDash(1),
		ValidArgsFunction: a.completeQueue,
	}
	flags := cmd.Flags()
	flags.IntVarP(&w.opts.Workers, "workers", "w", w.opts.Workers, "maximum number of concurrent commands")
	flags.Lookup("workers").DefValue = "one for each processor" // fixed, because the help text must not depend on the machine
	flags.BoolVar(&w.once, "once", false, "exit when no job is due")
	flags.Var(spanFlag{&w.snooze}, "snooze", "delay before retrying a job whose command exited with 75")
	flags.Var(spanFlag{&w.queue.Timeout}, "max-run", "time limit of a command; default: no limit")
	flags.Var(spanFlag{&w.drain}, "drain", "how long running commands may continue after a signal")
	flags.StringVar(&w.opts.WorkerID, "worker", "", "unique `name` of this worker; default host-pid-random")
	a.prints(cmd, settledView)
	return a.does(cmd, func(ctx context.Context, args []string) (err error) {
		if err := program(args[1:]); err != nil {
			return err
		}
		if w.printed, err = newFeed(a, settledView); err != nil {
			return err
		}
		return a.runWork(ctx, &w, args[0], args[1:])
	})
}

var settledView = view[observe.Settled]{
	columns: []column[observe.Settled]{
		{"id", func(s observe.Settled) cell { return id(s.ID) }},
		{"attempt", func(s observe.Settled) cell { return number(int64(s.Attempt)) }},
		{"outcome", func(s observe.Settled) cell { return text(string(s.Outcome)).in(outcomeColor(s.Outcome)) }},
		{"wait", func(s observe.Settled) cell { return took(s.Wait) }},
		{"ran", func(s observe.Settled) cell { return took(s.Ran) }},
		{"err", func(s observe.Settled) cell { return long(errorText(s.Err)) }},
	},
	name: func(s observe.Settled) string { return strconv.FormatInt(s.ID, 10) },
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func outcomeColor(o honker.Outcome) style {
	switch o {
	case honker.OutcomeDied, honker.OutcomeLost:
		return red
	case honker.OutcomeRetried:
		return yellow
	}
	return plain
}

// runWork processes jobs in the queue until ctx ends or the output can't be written.
func (a *app) runWork(ctx context.Context, w *working, queue string, argv []string) error {
	work, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	observer := &observe.Observer{Settled: func(s observe.Settled) {
		if err := w.printed.add(s); err != nil {
			stop(err)
		}
	}}
	hard, done := secondSignal()
	defer done()
	hard, done = limitDrain(hard, work, w.drain)
	defer done()
	defer a.noteDrain(ctx)()
	err := a.serve(work, observer, func(db *honker.DB) error {
		d, err := a.database(work)
		if err != nil {
			return err
		}
		a.noteMisspelled(work, db, queue)
		q := honker.NewQueue[json.RawMessage](db, queue, &w.queue)
		handle := a.handler(w, hard, a.environment(d), argv)
		if w.once {
			_, err := q.WorkDue(work, handle, &w.opts)
			return err
		}
		return q.Work(work, handle, &w.opts)
	})
	if cause := context.Cause(work); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// limitDrain returns a ctx that ends when hard ends, or when limit has passed since work ended.
func limitDrain(hard, work context.Context, limit time.Duration) (context.Context, func()) {
	over, cancel := context.WithCancel(hard)
	ended := make(chan struct{})
	stop := context.AfterFunc(work, func() {
		defer close(ended)
		select {
		case <-time.After(limit):
			cancel()
		case <-over.Done():
		}
	})
	return over, func() {
		cancel()
		if !stop() {
			<-ended
		}
	}
}

// noteDrain prints a note when ctx ends, so that the operator knows that honker is waiting for commands. Call the
// returned function to cancel the note.
func (a *app) noteDrain(ctx context.Context) (end func()) {
	said := make(chan struct{})
	cancel := context.AfterFunc(ctx, func() {
		defer close(said)
		a.note("draining: no more jobs start; a second signal ends running commands")
	})
	return func() {
		if !cancel() {
			<-said
		}
	}
}

// secondSignal returns a ctx that ends with the second signal. The first signal starts the drain.
func secondSignal() (context.Context, func()) {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		for range 2 {
			select {
			case <-signals:
			case <-ctx.Done():
				return
			}
		}
		cancel()
	}()
	return ctx, func() { signal.Stop(signals); cancel() }
}

// handler returns a handler that runs argv for each job. When hard ends, the commands are terminated and their jobs are
// returned to the queue.
func (a *app) handler(w *working, hard context.Context, env, argv []string) func(context.Context, *honker.Job[json.RawMessage]) error {
	errs := &together{w: a.stderr}
	return func(ctx context.Context, job *honker.Job[json.RawMessage]) error {
		run, cancel := context.WithCancel(ctx)
		defer context.AfterFunc(hard, cancel)()
		defer cancel()
		said, complained := &beginning{most: maxOutput}, &ending{to: errs, most: maxErrors}
		err := child{
			argv: argv, env: append(jobEnv(&job.JobInfo), env...), grace: endGrace,
			stdin: bytes.NewReader(job.Payload), stdout: said, stderr: complained,
		}.run(run)
		why := complained.rest()
		if hard.Err() != nil && err != nil {
			return honker.Snooze(0)
		}
		if err != nil {
			return w.verdict(err, why)
		}
		if said.more {
			a.note("job %d: result not saved, output exceeds %d bytes", job.ID, maxOutput)
			return nil
		}
		return saveOutput(job, said.text)
	}
}

// verdict maps the exit code of a command to the outcome of its job.
func (w *working) verdict(err error, why string) error {
	if why != "" {
		err = fmt.Errorf("%w: %s", err, why)
	}
	switch code, _ := exitCode(err); code {
	case exitTempFail:
		return honker.Snooze(w.snooze)
	case exitDataErr:
		return honker.Reject(err)
	}
	return err
}

// saveOutput sets the output of a command as the result of its job. Empty output sets no result.
func saveOutput(job *honker.Job[json.RawMessage], output []byte) error {
	output = bytes.TrimSpace(output)
	switch {
	case len(output) == 0:
		return nil
	case json.Valid(output):
		return job.SetResult(json.RawMessage(output))
	}
	return job.SetResult(strings.ToValidUTF8(string(output), "�"))
}

func jobEnv(job *honker.JobInfo) []string {
	return []string{
		"HONKER_QUEUE=" + job.Queue,
		"HONKER_JOB_ID=" + strconv.FormatInt(job.ID, 10),
		"HONKER_ATTEMPT=" + strconv.Itoa(job.Attempts),
		"HONKER_MAX_ATTEMPTS=" + strconv.Itoa(job.MaxAttempts),
		"HONKER_KEY=" + job.Key,
		"HONKER_RUN_AT=" + job.RunAt.UTC().Format(time.RFC3339),
	}
}
