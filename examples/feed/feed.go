package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/honker-go/honker"
)

// config holds the values of the flags.
type config struct {
	db, log       string
	rate          int // lines per second; 0 for no limit
	follow        bool
	lookup, lease time.Duration
}

//go:embed schema.sql
var schema string

// These are the numbers of events that compaction keeps in each topic once all consumers have read
// them.
const (
	keepOK     = 500
	keepFailed = 100
)

// feed connects the log, the topics and their consumers.
type feed struct {
	config
	db         *honker.DB
	access     *honker.Stream[Request] // reads both topics:
	ok, failed *honker.Stream[Request]
	trouble    *honker.Stream[string]
	group      *honker.Group[Request]
	tailer     tailer
	alarm      *alarm
	w          io.Writer
}

func open(ctx context.Context, c config, w io.Writer) (*feed, error) {
	db, err := honker.Open(ctx, c.db, nil)
	if err != nil {
		return nil, err
	}
	f := &feed{
		config:  c,
		db:      db,
		access:  honker.NewStream[Request](db, "access:*", nil),
		ok:      honker.NewStream[Request](db, "access:ok", nil),
		failed:  honker.NewStream[Request](db, "access:error", nil),
		trouble: honker.NewStream[string](db, "trouble", nil),
		w:       w,
	}
	f.group = f.access.Group(resolversName, groupOptions(c.lease))
	f.tailer = tailer{db: db, ok: f.ok, failed: f.failed, log: c.log, rate: c.rate, follow: c.follow}
	if err := f.prepare(ctx); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return f, nil
}

func (f *feed) prepare(ctx context.Context) error {
	if _, err := f.db.SQL().ExecContext(ctx, schema); err != nil {
		return fmt.Errorf("create tables: %w", err)
	}
	if err := f.ok.SetRetention(ctx, honker.Retention{MaxCount: keepOK}); err != nil {
		return err
	}
	if err := f.failed.SetRetention(ctx, honker.Retention{MaxCount: keepFailed}); err != nil {
		return err
	}
	at, err := readPlace(ctx, f.db.SQL())
	if err == nil {
		f.alarm, err = openAlarm(f.alertsPath(), at.lines == 0)
	}
	return err
}

func (f *feed) alertsPath() string { return filepath.Join(filepath.Dir(f.config.db), "alerts.log") }

func (f *feed) close() error { return errors.Join(f.alarm.file.Close(), f.db.Close()) }

// serve runs until the log is read and all consumers have caught up, or until ctx is done. It then
// checks the books, prints them, and compacts the topics.
func (f *feed) serve(ctx context.Context) error {
	began := time.Now()
	if err := f.work(ctx); err != nil {
		return err
	}
	took := time.Since(began)
	ctx = context.WithoutCancel(ctx)
	b, err := readBooks(ctx, f)
	if err != nil {
		return err
	}
	b.report(f.w)
	fmt.Fprintf(f.w, "\nIt took %v.\n", took.Round(time.Millisecond))
	if err := b.err(); err != nil {
		return err // keep the events as evidence
	}
	return f.compact(ctx)
}

// work runs the tailer and all consumers, and shows the progress, until all events are handled.
func (f *feed) work(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	loops := []func(context.Context) error{f.tailer.run, f.count, f.condense, f.watchAlarm}
	for range resolvers {
		loops = append(loops, f.resolve)
	}
	return honker.Run(ctx, append(loops, func(ctx context.Context) error {
		defer stop()
		return f.watch(ctx)
	})...)
}

func (f *feed) watchAlarm(ctx context.Context) error { return f.alarm.run(ctx, f.failed) }

// watch shows the progress until all events are handled or ctx is done.
func (f *feed) watch(ctx context.Context) error {
	d := newDisplay(f.w)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil {
		read := f.tailer.ended.Load() // must be read first: the standings then cover the whole log
		s, err := readStandings(context.WithoutCancel(ctx), f)
		if err != nil {
			return err
		}
		done := read && s.idle()
		d.show(s, done)
		if done {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	return nil
}

// compact deletes events beyond the retention of their topics. Events that a consumer has not read
// yet are kept.
func (f *feed) compact(ctx context.Context) error {
	fmt.Fprintln(f.w)
	for _, topic := range []*honker.Stream[Request]{f.ok, f.failed} {
		stats, err := topic.Compact(ctx)
		if err != nil {
			return err
		}
		fmt.Fprintf(f.w, "Compacted %s: %d events are gone", topic.Name(), stats.Deleted)
		if stats.PinnedBy != "" {
			fmt.Fprintf(f.w, ", the rest can go when %s has read them", stats.PinnedBy)
		}
		fmt.Fprintln(f.w, ".")
	}
	return nil
}
