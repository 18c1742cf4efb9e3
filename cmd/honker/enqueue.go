package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/honker-go/honker"
)

// placed is a newly enqueued job, or the existing job with the same unique key.
type placed struct {
	ID     int64
	Queue  string
	Result string
}

var placedView = view[placed]{
	columns: []column[placed]{
		{"id", func(p placed) cell { return id(p.ID) }},
		{"queue", func(p placed) cell { return text(p.Queue) }},
		{"result", func(p placed) cell { return text(p.Result) }},
	},
	name: func(p placed) string { return strconv.FormatInt(p.ID, 10) },
}

// enqueueing holds the flags of enqueue.
type enqueueing struct {
	delay, expires     time.Duration
	at                 time.Time
	priority, attempts int
	unique, key        string
	headers            []string
}

func (a *app) enqueue() *cobra.Command {
	var e enqueueing
	cmd := &cobra.Command{
		Use:   "enqueue QUEUE JSON|-",
		Short: "Add a job, or with - a job for each line of standard input",
		Long: `enqueue adds a job. With - it adds a job for each line of standard input. The lines are JSON, and are added in
transactions of up to 1,000. If a line is not JSON, its transaction is rolled back, and the error names the line.`,
		Example: `  honker enqueue emails '{"to": "ann@example.com"}' --delay 10m
  honker enqueue emails - < emails.jsonl`,
		GroupID:           groupChange,
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: a.completeQueue,
	}
	flags := cmd.Flags()
	flags.Var(spanFlag{&e.delay}, "delay", "run after this delay: 30s, 10m, 1d")
	flags.Var(fromNow(&e.at), "at", "run at this `time` or later")
	flags.Var(spanFlag{&e.expires}, "expires-in", "do not start after this span")
	flags.IntVar(&e.priority, "priority", 0, "priority; larger numbers run first")
	flags.IntVar(&e.attempts, "max-attempts", 0, "maximum number of attempts; default 25")
	flags.StringVar(&e.key, "key", "", "jobs with the same key, such as a customer, share limits of the queue")
	flags.StringArrayVar(&e.headers, "header", nil, "add a header `name=value` to the job; can be repeated")
	flags.StringVar(&e.unique, "unique", "", "unique `key`: if a job with this key exists, add none")
	a.prints(cmd, placedView)
	return a.does(cmd, func(ctx context.Context, args []string) error {
		if args[1] == "-" && e.unique != "" {
			return usage("", "--unique cannot be combined with -: all lines would have the same key")
		}
		headers, err := pairs("--header", e.headers)
		if err != nil {
			return err
		}
		opts := append(e.options(cmd), honker.Headers(headers))
		return a.change(ctx, func(db *honker.DB) error {
			a.noteMisspelled(ctx, db, args[0])
			if args[1] == "-" {
				return a.enqueueLines(ctx, db, args[0], opts)
			}
			return a.enqueueOne(ctx, db, args[0], args[1], opts)
		})
	})
}

// options returns the options whose flags were set. The library validates their values.
func (e *enqueueing) options(cmd *cobra.Command) (opts []honker.EnqueueOption) {
	add := func(flag string, opt honker.EnqueueOption) {
		if cmd.Flags().Changed(flag) {
			opts = append(opts, opt)
		}
	}
	add("delay", honker.Delay(e.delay))
	add("at", honker.RunAt(e.at))
	add("expires-in", honker.ExpiresIn(e.expires))
	add("priority", honker.Priority(e.priority))
	add("max-attempts", honker.MaxAttempts(e.attempts))
	add("key", honker.Key(e.key))
	add("unique", honker.Unique(e.unique, nil))
	return opts
}

func (a *app) enqueueOne(ctx context.Context, db *honker.DB, queue, args string, opts []honker.EnqueueOption) error {
	if !json.Valid([]byte(args)) {
		return usage(`honker enqueue `+queue+` '{"to": "ann"}'`, "%q is not JSON", args)
	}
	var p honker.Placement
	if _, err := byName(db, queue).Enqueue(ctx, json.RawMessage(args), append(opts, honker.Placed(&p))...); err != nil {
		return err
	}
	return one(a, placedView, placed{ID: p.ID, Queue: queue, Result: string(p.Result)})
}

const (
	linesPerTx = 1000
	lineWait   = 100 * time.Millisecond // how long to wait for another line before enqueueing the lines read so far
)

// line is a line of input, or the error that ended the input.
type line struct {
	number int
	text   []byte
	err    error
}

func (a *app) enqueueLines(ctx context.Context, db *honker.DB, queue string, opts []honker.EnqueueOption) error {
	q := byName(db, queue)
	l, err := newList(a, placedView)
	if err != nil {
		return err
	}
	err = a.eachChunk(ctx, func(chunk []json.RawMessage) error { return enqueueChunk(ctx, q, chunk, opts, l) })
	if err != nil {
		return stopped(err, "added", l.n, "job")
	}
	return l.close("lines")
}

// eachChunk reads lines from standard input and calls do with chunks of them.
func (a *app) eachChunk(ctx context.Context, do func(chunk []json.RawMessage) error) error {
	for input := readLines(ctx, a.stdin); ; {
		chunk, end := nextChunk(ctx, input)
		last := errors.Is(end, io.EOF)
		if len(chunk) > 0 && (end == nil || last) {
			if err := do(chunk); err != nil {
				return err
			}
		}
		switch {
		case last:
			return nil
		case end != nil:
			return end
		}
	}
}

// stopped adds to err how much was done before the error. An error in the first chunk is returned unchanged, because
// nothing has been done.
func stopped(err error, done string, n int, what string) error {
	if n == 0 && !errors.Is(err, context.Canceled) {
		return err
	}
	c := partly(err, "%s %s", done, plural(int64(n), what))
	c.try = "the remaining lines only"
	return c
}

func enqueueChunk(ctx context.Context, q *honker.Queue[json.RawMessage], chunk []json.RawMessage, opts []honker.EnqueueOption, l *list[placed]) error {
	ids, err := q.EnqueueMany(ctx, chunk, opts...)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if err := l.add(placed{ID: id, Queue: q.Name(), Result: string(honker.PlacedNew)}); err != nil {
			return err
		}
	}
	return l.app.out.Flush() // so that a program that reads the output can already act on these jobs
}

// nextChunk collects the lines for a transaction. It waits only briefly for more lines, so that if the producer is
// slow its first jobs can already run.
func nextChunk(ctx context.Context, input <-chan line) (chunk []json.RawMessage, end error) {
	var waited <-chan time.Time
	for len(chunk) < linesPerTx {
		select {
		case in := <-input:
			switch {
			case in.err != nil:
				return chunk, in.err
			case !json.Valid(in.text):
				return nil, usage("", "line %d is not JSON: %s", in.number, brief(string(in.text)))
			}
			chunk = append(chunk, in.text)
			waited = time.After(lineWait)
		case <-waited:
			return chunk, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return chunk, nil
}

// readLines reads lines in a goroutine, because a read from a terminal or a pipe doesn't end with ctx. The goroutine
// ends with the input or with the process.
func readLines(ctx context.Context, r io.Reader) <-chan line {
	lines := make(chan line, linesPerTx)
	go func() {
		in, n := bufio.NewScanner(r), 0
		in.Buffer(nil, maxPayload+1)
		for in.Scan() {
			n++
			text := bytes.TrimSpace(in.Bytes())
			if len(text) > 0 && !send(ctx, lines, line{number: n, text: bytes.Clone(text)}) {
				return
			}
		}
		send(ctx, lines, line{err: ended(in.Err(), n+1)})
	}()
	return lines
}

// ended returns the error at the end of the input: io.EOF, or the reason why line n couldn't be read.
func ended(err error, n int) error {
	switch {
	case err == nil:
		return io.EOF
	case errors.Is(err, bufio.ErrTooLong):
		return usage("", "line %d has more than %d bytes", n, maxPayload)
	default:
		return fmt.Errorf("read line %d: %w", n, err)
	}
}

func send(ctx context.Context, lines chan<- line, l line) bool {
	select {
	case lines <- l:
		return true
	case <-ctx.Done():
		return false
	}
}
