//go:build unix

package torture

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/tests/faultvfs"
)

// Faults checks how the library handles a failing disk. A step that returned nil must be in the
// file. A step that returned an error must leave the file intact, the next step must work, earlier
// data must not be lost, and nothing may hang.
//
// Before many steps of a script, a disk operation is chosen by its kind and its position. It fails
// once, or from then on until the step or several further steps have ended.
func Faults(ctx context.Context, r *Round) error {
	for _, name := range []string{"acked_lost", "hung", "errors_that_happened"} {
		r.Add(name, 0)
	}
	dir, err := r.sub("run")
	if err != nil {
		return err
	}
	disk, err := faultvfs.New(dir)
	if err != nil {
		return err
	}
	defer disk.Remove()
	f := &faulter{Round: r, disk: disk, path: filepath.Join(dir, "app.db")}
	if err := f.open(ctx); err != nil {
		return err
	}
	err = f.play(ctx)
	keep(f.path, &err)
	if closed := f.close(); err == nil {
		err = closed
	}
	return err
}

type faulter struct {
	*Round
	disk *faultvfs.Disk
	path string
	db   *honker.DB
	last state
	// A step has failed. If the disk failed to sync its commit, the commit remains in the log,
	// unacknowledged, until it is overwritten or the file is opened again.
	pending bool
}

// hangs is far more time than any call may take, including the BusyTimeout.
const hangs = 30 * time.Second

// fault is a planned failure of disk operations.
type fault struct {
	kind    faultvfs.Kind
	after   int
	forGood bool
	full    bool // the disk is full
	fired   atomic.Int64
	wal     atomic.Bool // the operation was on the log
}

func (f *fault) String() string {
	return fmt.Sprintf("%s after %d, for good %v, full %v", f.kind, f.after, f.forGood, f.full)
}

// arm plans a fault. Half of the time its kind is among mostly.
func (f *faulter) arm(mostly ...faultvfs.Kind) *fault {
	kinds := faultvfs.Kinds
	if f.oneIn(2) {
		kinds = mostly
	}
	t := &fault{kind: kinds[f.Rand.IntN(len(kinds))], after: f.Rand.IntN(1 << f.Rand.IntN(5)), forGood: f.oneIn(2)}
	t.full = t.kind == faultvfs.Write && f.oneIn(2)
	seen := 0
	f.disk.Fail(func(c faultvfs.Call) int32 {
		if c.Kind != t.kind {
			return 0
		}
		seen++
		if seen <= t.after || t.fired.Load() > 0 && !t.forGood {
			return 0
		}
		t.fired.Add(1)
		t.wal.Store(strings.HasSuffix(c.Path, "-wal"))
		if t.full {
			return faultvfs.Full
		}
		return t.kind.Code()
	})
	return t
}

// disarm ends the fault and counts its effects.
func (f *faulter) disarm(t *fault) {
	f.disk.Fail(nil)
	if n := t.fired.Load(); n > 0 {
		f.Add("faults", 1)
		f.Add("failed_calls", n)
		f.Add("faults_"+string(t.kind), 1)
		if t.full {
			f.Add("faults_full", 1)
		}
		if t.kind == faultvfs.Open && t.wal.Load() {
			f.Add("faults_open_wal", 1)
		}
	}
}

// open opens the file during a fault, and again without it if that fails.
func (f *faulter) open(ctx context.Context) (err error) {
	t := f.arm(faultvfs.Open, faultvfs.Open, faultvfs.ShmMap)
	err = f.within(func(ctx context.Context) (err error) {
		f.db, err = honker.Open(ctx, f.path, f.options())
		return err
	})
	f.disarm(t)
	if err == nil {
		return nil
	}
	if t.fired.Load() == 0 {
		return fmt.Errorf("open without a fault: %w", err)
	}
	f.Add("surfaced", 1)
	f.db, err = honker.Open(context.WithoutCancel(ctx), f.path, f.options())
	if err != nil {
		return fmt.Errorf("open, after an open during %v: %w", t, err)
	}
	return nil
}

func (f *faulter) options() *honker.Options {
	return &honker.Options{NoFileNotices: true, Durability: honker.Durability(f.Seed % 2), BusyTimeout: time.Second}
}

// within runs do and returns errHung if it does not return.
func (f *faulter) within(do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), hangs)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- do(ctx) }()
	select {
	case err := <-done:
		return err
	case <-time.After(2 * hangs):
		f.Add("hung", 1)
		return errHung
	}
}

var errHung = errors.New("the operation hangs")

func (f *faulter) play(ctx context.Context) error {
	s, err := newScript(context.WithoutCancel(ctx), "first", f.db, f.Rand)
	if err != nil {
		return err
	}
	if f.last, err = stateOf(context.Background(), f.db.SQL()); err != nil {
		return err
	}
	for i := 0; i < 60 && ctx.Err() == nil; i++ {
		name, err := f.step(s, !f.oneIn(3))
		if err != nil {
			return fmt.Errorf("step %d, %s: %w", i, name, err)
		}
	}
	return nil
}

// step runs a step, perhaps with a fault, or several steps with a permanent fault. It then checks
// the result of the last step.
func (f *faulter) step(s *script, faulty bool) (name string, err error) {
	t := &fault{}
	if faulty {
		t = f.arm(faultvfs.Read, faultvfs.Write, faultvfs.Sync)
	}
	last := f.stumble(s, t)
	f.disarm(t)
	f.pending = f.pending || last.refused
	switch {
	case errors.Is(last.err, errHung):
		err = fmt.Errorf("%v: %w", t, last.err)
	case last.err != nil && t.fired.Load() == 0:
		err = fmt.Errorf("without a fault: %w", last.err)
	case last.err != nil:
		err = f.refused(t, last.some)
	default:
		err = f.done(t, last)
	}
	return last.name, err
}

// outcome is the result of a step.
type outcome struct {
	name string
	is   effect
	err  error
	some bool // some of the directly preceding steps were acknowledged

	refused bool // this step, or some of the directly preceding steps, failed
}

// stumble runs a step, or several that may all meet the fault, and returns the outcome of the last.
func (f *faulter) stumble(s *script, t *fault) (o outcome) {
	more := 0
	if t.forGood {
		more = f.Rand.IntN(4)
	}
	for ; ; more-- {
		var do step
		o.name, do = s.next()
		o.is, o.err = f.try(do)
		o.refused = o.refused || o.err != nil
		if more == 0 || errors.Is(o.err, errHung) || o.err != nil && t.fired.Load() == 0 {
			return o
		}
		o.some = o.some || o.err == nil
	}
}

func (f *faulter) try(do step) (is effect, err error) {
	f.Add("operations", 1)
	err = f.within(func(ctx context.Context) (err error) {
		is, err = do(ctx)
		return err
	})
	return is, err
}

// done checks that the effect of an acknowledged step is in the file.
func (f *faulter) done(t *fault, o outcome) error {
	ctx := context.Background()
	there, err := o.is(ctx)
	if err != nil {
		return err
	}
	if !there {
		f.Add("acked_lost", 1)
		return fmt.Errorf("%v: the step was acknowledged but is missing", t)
	}
	s, err := stateOf(ctx, f.db.SQL())
	f.pending = f.pending && (o.refused || s == f.last) // if the state has changed, the step was a commit
	f.last = s
	return err
}

// refused records a failed step. The step may have been committed nevertheless, but not in part.
func (f *faulter) refused(t *fault, some bool) error {
	f.Add("surfaced", 1)
	s, err := stateOf(context.Background(), f.db.SQL())
	if err != nil {
		return fmt.Errorf("reading the state after %v: %w", t, err)
	}
	if s != f.last && !some {
		f.Add("errors_that_happened", 1)
	}
	f.last = s
	return nil
}

// close closes the file during a fault and reopens it. The jobs and events must be the same as
// before, except for a failed step. Locks may differ, because Close releases them.
func (f *faulter) close() (err error) {
	ctx := context.Background()
	checked := f.db.Check(ctx)
	before, err := f.jobsAndEvents(ctx)
	if err := errors.Join(checked, err); err != nil {
		return err
	}
	t := f.arm(faultvfs.Delete, faultvfs.Truncate)
	err = f.within(func(context.Context) error { return f.db.Close() })
	f.disarm(t)
	if err != nil && t.fired.Load() == 0 || errors.Is(err, errHung) {
		return fmt.Errorf("close, %v: %w", t, err)
	}
	f.db, err = honker.Open(ctx, f.path, f.options())
	if err != nil {
		return fmt.Errorf("open again: %w", err)
	}
	defer f.db.Close()
	defer func() { keep(f.path, &err) }()
	after, err := f.jobsAndEvents(ctx)
	if err := errors.Join(err, f.db.Check(ctx)); err != nil {
		return err
	}
	switch same := slices.Equal(before, after); {
	case !same && f.pending:
		f.Add("errors_that_happened", 1)
	case !same:
		f.Add("acked_lost", 1)
		return fmt.Errorf("close during %v: of %d jobs and events, %q are missing, and %q are new", t, len(before), without(before, after), without(after, before))
	}
	return nil
}

func without(all, some []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(s string) bool { return slices.Contains(some, s) })
}

func (f *faulter) jobsAndEvents(ctx context.Context) ([]string, error) {
	return column[string](ctx, f.db.SQL(), `SELECT 'live ' || id || state || substr(payload, 1, 12) FROM _honker_live
		UNION ALL SELECT 'dead ' || id || substr(payload, 1, 12) FROM _honker_dead
		UNION ALL SELECT 'event ' || offset || substr(payload, 1, 12) FROM _honker_stream ORDER BY 1`)
}
