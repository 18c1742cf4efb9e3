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

// Cuts checks that a power cut leaves the file in the state after some commit. With Full, this must
// not be earlier than the last acknowledged commit.
//
// A script runs on a fault disk. At random moments it records an image of the disk that a power cut
// would leave. Afterwards each image is opened and compared with the recorded states of the file,
// and most images are also used by the library.
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

// developAll checks the pictures, several at a time.
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

// cutter records a run.
type cutter struct {
	*Round
	full     bool
	pages    int // pages of the log between checkpoints; 0 for a rollback journal
	pictures []picture
	states   []state // after each acknowledged step; the first is that of an empty file
	steps    []string
	acked    func() []int64
}

// newCutter chooses the durability and the journal mode by the seed. All combinations occur.
func newCutter(r *Round) *cutter {
	return &cutter{Round: r, full: r.Seed%2 == 0, pages: []int{1, 20, 1000, 0}[r.Seed/2%4]}
}

// picture is the state that a power cut would leave, with the numbers of acknowledged writes at
// that moment.
type picture struct {
	image faultvfs.Image
	acked []int64
}

// checkpoints sets the number of pages after which a connection checkpoints the log.
func (c *cutter) checkpoints(ctx context.Context, conn driver.Conn) error {
	_, err := conn.(driver.ExecerContext).ExecContext(ctx, fmt.Sprint(`PRAGMA wal_autocheckpoint = `, c.pages), nil)
	return err
}

// quiet is the logger for errors that are expected all the time.
var quiet = slog.New(slog.DiscardHandler)

func (c *cutter) options() *honker.Options {
	o := &honker.Options{NoFileNotices: true, Readers: 1, OnConnect: c.checkpoints, Logger: quiet}
	if c.full {
		o.Durability = honker.Full
	}
	return o
}

// open opens a file in WAL mode. Without a log, it attaches a pool with a rollback journal and its
// own durability. FULL may lose the last commit in this mode, because the deletion of the journal
// may not be durable; EXTRA may not.
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

// seldom is the average number of moments per picture, by pages. It yields a few dozen pictures per
// round.
var seldom = map[int]int{1: 24, 20: 18, 1000: 12, 0: 28}

// shoot runs work on a fault disk and takes pictures.
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
	luck := rand.New(rand.NewPCG(c.Seed, 2)) // any connection may use it, but only one at a time
	disk.Cut(func() bool { return luck.IntN(seldom[c.pages]) == 0 }, func(m faultvfs.Image) {
		c.pictures = append(c.pictures, picture{m, c.acked()})
	})
	return work(filepath.Join(dir, "app.db"))
}

// film runs a script and records the state of the file after each step.
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

// develop writes the files of picture i, checks and compares them, and may run the library on them.
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
	if luck.IntN(3) > 0 { // this takes longer than everything else
		if err := c.workOn(ctx, path, luck); err != nil {
			return fmt.Errorf("running the library after cut %d: %w", i, err)
		}
	}
	return os.RemoveAll(dir)
}

// print writes the files of a picture. Repeated calls write the same files.
func (c *cutter) print(i int, suffix string) (dir string, luck *rand.Rand, err error) {
	luck = rand.New(rand.NewPCG(c.Seed, uint64(i)+3))
	if dir, err = c.sub(fmt.Sprint("image", i, suffix)); err == nil {
		err = c.pictures[i].image.Write(dir, luck)
	}
	return dir, luck, err
}

// compare looks for the state of the file among the recorded states.
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
		return errors.New("the file is in a state that was never committed")
	}
	return c.account(p.acked[0] - int64(k))
}

// account counts lost acknowledged commits. With Full they are an error.
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

// stateOfFile checks the integrity of a file and returns its state, without using honker.
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

// goesOn is the number of steps that workOn runs.
const goesOn = 20

// workOn opens the file left by a power cut with the library, checks it and runs further steps.
// Acknowledged steps must be in the file.
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
			return errors.Join(fmt.Errorf("%s was acknowledged but is missing", name), err)
		}
	}
	c.Add("worked_on", goesOn)
	return db.Check(ctx)
}
