//go:build unix

package faults_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/testkit"
)

// troubled is a file with content that may disturb other rows.
type troubled struct {
	name       string
	statements []string
	mayFail    bool // verbs may fail, but must end with their ctx

	db       *honker.DB
	listener *honker.Listener
	member   *honker.Member[int]

	mu     sync.Mutex
	failed []string
}

const (
	atOnce  = 6                      // number of files exercised at the same time; they mostly wait
	idleFor = 700 * time.Millisecond // how long the loops run idle

	shortPart = 7 // with -short, every seventh file is tested

	// Limits for processor time per wall time. The idle loops of a file use 0.01 to 0.02, and a
	// spinning loop uses all it can get.
	busyTogether = 0.2
	busyAlone    = 0.1
)

// exerciseAll runs all verbs and then all loops on files, a few at a time. If their loops use too
// much processor time together, each file is measured alone.
func exerciseAll(t *testing.T, files []*troubled) {
	t.Helper()
	if testing.Short() { // the race detector needs a smaller selection
		files = everyNth(files, shortPart)
	}
	for batch := range slices.Chunk(files, atOnce) {
		for _, f := range batch {
			f.open(t)
		}
		together(batch, (*troubled).runVerbs)
		// Under the race detector, any loop takes ten times as long.
		if busy := idle(batch); busy > busyTogether && !testing.Short() {
			for _, f := range batch {
				if alone := idle([]*troubled{f}); alone > busyAlone {
					f.fail("loops have used %.0f %% of a processor, %.0f %% with those of others", 100*alone, 100*busy)
				}
			}
		}
		for _, f := range batch {
			f.check("close", f.db.Close())
		}
	}
}

func everyNth(files []*troubled, n int) (some []*troubled) {
	for i := 0; i < len(files); i += n {
		some = append(some, files[i])
	}
	return some
}

func together(files []*troubled, do func(*troubled)) {
	var all sync.WaitGroup
	for _, f := range files {
		all.Go(func() { do(f) })
	}
	all.Wait()
}

// idle runs all loops of files and returns the share of a processor that they used.
func idle(files []*troubled) float64 {
	ctx, cancel := context.WithTimeout(context.Background(), idleFor)
	defer cancel()
	before, began := processorTime(), time.Now()
	together(files, func(f *troubled) { f.runLoops(ctx) })
	return float64(processorTime()-before) / float64(time.Since(began))
}

func processorTime() time.Duration {
	var used syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &used) // cannot fail for the own process
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

func (f *troubled) open(t *testing.T) {
	t.Helper()
	ctx := context.Background()
	var err error
	f.db, err = honker.Open(ctx, filepath.Join(t.TempDir(), "odd.db"),
		&honker.Options{Logger: slog.New(slog.DiscardHandler), BusyTimeout: 2 * time.Second})
	require.NoError(t, err)
	t.Cleanup(func() { _ = f.db.Close() })
	f.member, err = f.group().Join(ctx, "m")
	require.NoError(t, err)
	f.listener, err = f.db.Listen(ctx, "c") // must start before the odd messages are inserted
	require.NoError(t, err)
	t.Cleanup(func() { _ = f.listener.Close() })
	taken := 0
	for _, statement := range f.statements {
		_, err := f.db.SQL().ExecContext(ctx, statement)
		if err == nil {
			taken++
		}
		if f.mayFail {
			require.NoError(t, err, statement)
		}
	}
	require.Positive(t, taken, "what a constraint refuses cannot be in a file, but not everything can be refused: %s", f.name)
}

func (f *troubled) queue() *honker.Queue[int]   { return honker.NewQueue[int](f.db, "q", nil) }
func (f *troubled) stream() *honker.Stream[int] { return honker.NewStream[int](f.db, "t", nil) }
func (f *troubled) group() *honker.Group[int] {
	return f.stream().Group("good", &honker.GroupOptions{Lease: time.Minute})
}

func (f *troubled) fail(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failed = append(f.failed, fmt.Sprintf(format, args...))
}

func (f *troubled) check(what string, err error) {
	if err != nil {
		f.fail("%s: %v", what, err)
	}
}

var errNotSeen = errors.New("the good row was not seen")

// runVerbs checks that a valid row passes through every verb.
func (f *troubled) runVerbs() {
	for what, verb := range map[string]func(context.Context) error{
		"claim": f.claim, "listen": f.listen, "subscribe": f.subscribe, "group": f.claimEvent, "schedule": f.tick, "lock": f.lock, "read": f.readAll,
	} {
		limit := testkit.Timeout
		if f.mayFail {
			limit = idleFor / 2 // the awaited row may never come
		}
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		err := verb(ctx)
		cancel()
		if !f.mayFail {
			f.check(what, err)
		}
	}
}

func (f *troubled) claim(ctx context.Context) error {
	id, err := f.queue().Enqueue(ctx, 1)
	if err != nil {
		return err
	}
	jobs, err := f.queue().Claim(ctx, "w", 100)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(jobs, func(j *honker.Job[int]) bool { return j.ID == id }) {
		return errNotSeen
	}
	for _, j := range jobs {
		if err := j.Ack(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (f *troubled) listen(ctx context.Context) error {
	id, err := f.db.Notify(ctx, "c", 1)
	for err == nil {
		var n *honker.Notification
		if n, err = f.listener.Next(ctx); err == nil && n.ID == id {
			return nil
		}
	}
	return err
}

func (f *troubled) subscribe(ctx context.Context) error {
	for _, topic := range []string{"t", "t*"} {
		offset, err := f.stream().Publish(ctx, 1)
		if err != nil {
			return err
		}
		err = errNotSeen
		for e, failed := range honker.NewStream[int](f.db, topic, nil).Subscribe(ctx, "con", nil) {
			if e == nil {
				err = failed
				break
			}
			if e.Offset == offset {
				err = nil
				break
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (f *troubled) claimEvent(ctx context.Context) error {
	offset, err := f.stream().Publish(ctx, 1)
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		events, err := f.member.Claim(ctx, 10)
		if err != nil {
			return err
		}
		for _, e := range events {
			if err := e.Ack(ctx); err != nil {
				return err
			}
			if e.Offset == offset {
				return nil
			}
		}
	}
	return errNotSeen
}

func (f *troubled) tick(ctx context.Context) error {
	scheduler := f.db.Scheduler()
	if err := scheduler.Register(ctx, honker.Schedule{Name: "good", Queue: "scheduled", Spec: "@every 1s"}); err != nil {
		return err
	}
	fires, err := scheduler.Tick(ctx, time.Now().Add(2*time.Second))
	if !slices.ContainsFunc(fires, func(fire honker.Fire) bool { return fire.Name == "good" }) {
		return errors.Join(errNotSeen, err)
	}
	return nil // other schedules may fail, and are reported in err
}

func (f *troubled) lock(ctx context.Context) error {
	lock, err := f.db.TryLock(ctx, "good", nil)
	if err != nil {
		return err
	}
	allowed, err := f.db.RateLimit("r", 1000, time.Minute).Allow(ctx)
	if err == nil && !allowed {
		err = errNotSeen
	}
	return errors.Join(err, lock.Unlock(ctx))
}

// readAll calls the verbs that read or sweep everything.
func (f *troubled) readAll(ctx context.Context) error {
	var errs []error
	_, err := f.queue().NextClaimAt(ctx)
	errs = append(errs, err)
	_, err = f.queue().SweepExpired(ctx)
	errs = append(errs, err)
	_, err = f.stream().Consumers(ctx)
	errs = append(errs, err)
	_, err = f.stream().Groups(ctx)
	errs = append(errs, err)
	_, err = f.stream().Compact(ctx)
	errs = append(errs, err)
	_, err = f.db.Scheduler().List(ctx)
	errs = append(errs, err)
	_, err = f.db.Scheduler().Soonest(ctx)
	errs = append(errs, err)
	for e, err := range f.group().Dead(ctx) {
		if e == nil {
			errs = append(errs, err)
		}
	}
	for id := range int64(16) {
		if _, err := f.queue().Get(ctx, 50+id); !errors.Is(err, honker.ErrNotFound) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// runLoops runs all waiting loops until ctx ends. It reports loops that do not return then.
func (f *troubled) runLoops(ctx context.Context) {
	loops := map[string]func(){
		"work": func() {
			_ = f.queue().Work(ctx, func(context.Context, *honker.Job[int]) error { return nil }, nil)
		},
		"scheduler": func() { _ = f.db.Scheduler().Run(ctx) },
		"maintain":  func() { _ = f.db.Maintain(ctx, &honker.MaintainOptions{Every: 100 * time.Millisecond}) },
		"subscribe": func() {
			for range f.stream().Subscribe(ctx, "loop", nil) {
			}
		},
		"group": func() {
			_ = f.group().Work(ctx, func(context.Context, *honker.Delivery[int]) error { return nil }, nil)
		},
		"listen": func() {
			for range f.listener.All(ctx) {
			}
		},
		"lock": func() {
			if lock, err := f.db.Lock(ctx, "l3", nil); err == nil {
				_ = lock.Unlock(ctx)
			}
		},
		"result": func() { _, _ = honker.WaitResult[int](ctx, f.db, 5) },
	}
	ended := make(chan string, len(loops))
	for name, loop := range loops {
		go func() { loop(); ended <- name }()
	}
	patience := time.After(testkit.Timeout)
	for range loops {
		select {
		case name := <-ended:
			delete(loops, name)
		case <-patience:
			f.fail("%d loops have not ended with their ctx: %v", len(loops), loops)
			return
		}
	}
}
