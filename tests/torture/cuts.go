//go:build unix

package torture

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/tests/faultvfs"
)

// Cuts shows that a power cut leaves the file as it was after one of its commits, and
// with Full after no earlier one than the last that was acknowledged.
//
// A script runs on a fault disk. At random moments the disk says what a cut would have
// left just then; later each of these images is opened, compared with the states the
// file has been in, and most are worked with.
func Cuts(ctx context.Context, r *Round) error {
	if r.oneIn(4) {
		return crowdCuts(ctx, r)
	}
	c := newCutter(r)
	r.Add("acked_lost_full", 0)
	r.Add("corrupt", 0)
	r.Add("gaps", 0)
	if err := c.film(ctx); err != nil {
		return err
	}
	return c.developAll(ctx, c.compare)
}

// developAll looks at the pictures, several at a time.
func (c *cutter) developAll(ctx context.Context, compare func(context.Context, string, picture) error) error {
	var all sync.WaitGroup
	errs := make([]error, runtime.GOMAXPROCS(0))
	for lane := range errs {
		all.Go(func() {
			for i := lane; i < len(c.pictures) && errs[lane] == nil && ctx.Err() == nil; i += len(errs) {
				errs[lane] = c.develop(ctx, i, compare)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// cutter films a run.
type cutter struct {
	*Round
	full     bool
	pages    int // of log from one checkpoint to the next; 0: there is no log
	pictures []picture
	states   []state // after each step that was acknowledged; first, of an empty file
	steps    []string
	acked    func() []int64
}

// newCutter has one of all pairs of a durability and of how the journal is kept.
func newCutter(r *Round) *cutter {
	return &cutter{Round: r, full: r.Seed%2 == 0, pages: []int{1, 20, 1000, 0}[r.Seed/2%4]}
}

// picture is what a cut would have left, and what had been acknowledged by then.
type picture struct {
	image faultvfs.Image
	acked []int64
}

// checkpoints sets after how many pages a connection copies the log into the file.
func (c *cutter) checkpoints(ctx context.Context, conn driver.Conn) error {
	_, err := conn.(driver.ExecerContext).ExecContext(ctx, fmt.Sprint(`PRAGMA wal_autocheckpoint = `, c.pages), nil)
	return err
}

// quiet is the logger of what goes wrong on purpose, all the time.
var quiet = slog.New(slog.DiscardHandler)

func (c *cutter) options() *honker.Options {
	o := &honker.Options{NoFileNotices: true, Readers: 1, OnConnect: c.checkpoints, Logger: quiet}
	if c.full {
		o.Durability = honker.Full
	}
	return o
}

// open opens a file, with a log; or attaches an application's pool that has a journal
// beside the file, and its own durability: where FULL may lose the last commit, since the
// directory may still know of its journal, EXTRA may not.
func (c *cutter) open(ctx context.Context, path string) (db *honker.DB, end func(), err error) {
	if c.pages > 0 {
		db, err = honker.Open(ctx, path, c.options())
		return db, func() { _ = db.Close() }, err
	}
	pool, err := plain(path, "journal_mode(DELETE)", "synchronous("+map[bool]string{false: "FULL", true: "EXTRA"}[c.full]+")")
	if err != nil {
		return nil, nil, err
	}
	if db, err = honker.Attach(ctx, pool, c.options()); err != nil {
		return nil, nil, errors.Join(err, pool.Close())
	}
	return db, func() { _, _ = db.Close(), pool.Close() }, nil
}

func (c *cutter) durability() string {
	name := "normal"
	if c.full {
		name = "full"
	}
	if c.pages == 0 {
		return "attached_" + name
	}
	return name
}

// seldom is among how many moments a picture is taken, by pages: some dozens in a round.
var seldom = map[int]int{1: 24, 20: 18, 1000: 12, 0: 28}

// shoot runs work on a fault disk, and takes pictures.
func (c *cutter) shoot(work func(path string) error) error {
	dir, err := c.sub("run")
	if err != nil {
		return err
	}
	disk, err := faultvfs.New(dir)
	if err != nil {
		return err
	}
	defer disk.Remove()
	luck := rand.New(rand.NewPCG(c.Seed, 2)) // asked by any connection, one at a time
	disk.Cut(func() bool { return luck.IntN(seldom[c.pages]) == 0 }, func(m faultvfs.Image) {
		c.pictures = append(c.pictures, picture{m, c.acked()})
	})
	return work(filepath.Join(dir, "app.db"))
}

func (c *cutter) film(ctx context.Context) error {
	c.states = []state{""}
	done := int64(0)
	c.acked = func() []int64 { return []int64{done} }
	return c.shoot(func(path string) error {
		db, end, err := c.open(ctx, path)
		if err != nil {
			return ignore(err, context.DeadlineExceeded, context.Canceled)
		}
		defer end()
		advance := func(what string) error {
			done++
			s, err := stateOf(context.Background(), db.SQL())
			c.states, c.steps = append(c.states, s), append(c.steps, what)
			return err
		}
		if err := advance("open"); err != nil {
			return err
		}
		return c.play(ctx, db, advance)
	})
}

func (c *cutter) play(ctx context.Context, db *honker.DB, advance func(string) error) error {
	s, err := newScript(context.WithoutCancel(ctx), "first", db, c.Rand)
	if err != nil {
		return err
	}
	if err := advance("join"); err != nil {
		return err
	}
	for i := 0; i < 80 && ctx.Err() == nil; i++ {
		name, do := s.next()
		if _, err := do(context.WithoutCancel(ctx)); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := advance(name); err != nil {
			return err
		}
	}
	return s.unlockAll(context.WithoutCancel(ctx), advance)
}

// develop makes a file of picture i, checks it, compares it, and works with it.
func (c *cutter) develop(ctx context.Context, i int, compare func(context.Context, string, picture) error) (err error) {
	ctx = context.WithoutCancel(ctx)
	p := c.pictures[i]
	dir, luck, err := c.print(i, "")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_, _, failed := c.print(i, "-untouched")
			err = errors.Join(err, failed)
		}
	}()
	path := filepath.Join(dir, "app.db")
	if err := compare(ctx, path, p); err != nil {
		return fmt.Errorf("%s, checkpoints after %d pages, cut %d, after %v was acknowledged: %w", c.durability(), c.pages, i, p.acked, err)
	}
	c.Add("cuts", 1)
	c.Add("cuts_"+c.durability(), 1)
	if c.pages > 0 {
		c.Add(fmt.Sprint("cuts_checkpoint_", c.pages), 1)
	}
	if luck.IntN(3) > 0 { // it takes longer than all the rest
		if err := c.workOn(ctx, path, luck); err != nil {
			return fmt.Errorf("the library on what cut %d has left: %w", i, err)
		}
	}
	return os.RemoveAll(dir)
}

// print makes the same files of a picture each time.
func (c *cutter) print(i int, suffix string) (dir string, luck *rand.Rand, err error) {
	luck = rand.New(rand.NewPCG(c.Seed, uint64(i)+3))
	if dir, err = c.sub(fmt.Sprint("image", i, suffix)); err == nil {
		err = c.pictures[i].image.Write(dir, luck)
	}
	return dir, luck, err
}

// compare finds the image among the states that the file was in.
func (c *cutter) compare(ctx context.Context, path string, p picture) error {
	found, err := stateOfFile(ctx, path)
	if err != nil {
		c.Add("corrupt", 1)
		return err
	}
	k := len(c.states) - 1
	for ; k >= 0 && c.states[k] != found; k-- {
	}
	if k < 0 {
		c.Add("gaps", 1)
		return errors.New("a state that never was")
	}
	return c.account(p.acked[0] - int64(k))
}

// account counts what was acknowledged and is lost.
func (c *cutter) account(lost int64) error {
	if lost <= 0 {
		return nil
	}
	c.Add("acked_lost_"+c.durability(), lost)
	c.Max("acked_lost_max_"+c.durability(), lost)
	if c.full {
		return fmt.Errorf("%d acknowledged commits are lost", lost)
	}
	return nil
}

// stateOfFile looks at a file without honker: its integrity, and its state.
func stateOfFile(ctx context.Context, path string) (state, error) {
	pool, err := plain(path)
	if err != nil {
		return "", err
	}
	defer pool.Close()
	report, err := column[string](ctx, pool, `PRAGMA integrity_check`)
	if err != nil {
		return "", err
	}
	if !slices.Equal(report, []string{"ok"}) {
		return "", fmt.Errorf("integrity_check: %q", report)
	}
	return stateOf(ctx, pool)
}

// goesOn is how many steps the library does on what a cut has left.
const goesOn = 20

// workOn opens what a cut has left with the library, checks it, and goes on: what is
// acknowledged then is there.
func (c *cutter) workOn(ctx context.Context, path string, luck *rand.Rand) error {
	db, end, err := c.open(ctx, path)
	if err != nil {
		return err
	}
	defer end()
	s, err := newScript(ctx, "second", db, luck)
	if err != nil {
		return err
	}
	for range goesOn {
		name, do := s.next()
		is, err := do(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if there, err := is(ctx); err != nil || !there {
			return errors.Join(fmt.Errorf("%s is acknowledged and not there", name), err)
		}
	}
	c.Add("worked_on", goesOn)
	return db.Check(ctx)
}
