//go:build unix

package torture

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/tests/faultvfs"
)

// Tails truncates the write-ahead log of a run at every sector, and flips random bits of it. Each
// result must be the state of the file after some commit, and a longer log must never produce an
// earlier state.
func Tails(ctx context.Context, r *Round) (err error) {
	t := &tailer{cutter: &cutter{Round: r, full: true}}
	if err := t.record(ctx); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_, failed := t.lay("untouched", t.seen)
			err = errors.Join(err, failed)
		}
	}()
	if err := t.cut(ctx); err != nil {
		return err
	}
	return t.flip(ctx)
}

// cut truncates the log at each sector until it is complete.
func (t *tailer) cut(ctx context.Context) error {
	last := 0
	for length := 0; last < len(t.states)-1 && ctx.Err() == nil; length = min(length+512, len(t.log)) {
		k, err := t.look(ctx, t.log[:length])
		if err != nil {
			return fmt.Errorf("log cut at %d of %d: %w", length, len(t.log), err)
		}
		if k < last {
			return fmt.Errorf("log cut at %d of %d: back at state %d after %d", length, len(t.log), k, last)
		}
		if length == len(t.log) && k != len(t.states)-1 {
			return fmt.Errorf("the whole log gives state %d of %d", k, len(t.states)-1)
		}
		last = k
		t.Add("log_cuts", 1)
	}
	return nil
}

type tailer struct {
	*cutter
	file, log []byte
	seen      []byte // the log used by the last call of look
}

// record runs a script without checkpoints, and keeps the file and its log.
func (t *tailer) record(ctx context.Context) error {
	dir, err := t.sub("run")
	if err != nil {
		return err
	}
	disk, err := faultvfs.New(dir)
	if err != nil {
		return err
	}
	defer disk.Remove()
	path := filepath.Join(dir, "app.db")
	db, err := honker.Open(context.WithoutCancel(ctx), path, t.options())
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }() // closing would delete the log
	if err := t.write(context.WithoutCancel(ctx), db); err != nil {
		return err
	}
	t.file, t.log = disk.Contents(path), disk.Contents(path+"-wal")
	return nil
}

func (t *tailer) write(ctx context.Context, db *honker.DB) error {
	t.states = []state{""}
	advance := func(string) error {
		s, err := stateOf(ctx, db.SQL())
		t.states = append(t.states, s)
		return err
	}
	s, err := newScript(ctx, "first", db, t.Rand)
	if err := errors.Join(err, advance("open")); err != nil {
		return err
	}
	for range 40 {
		name, do := s.next()
		if name == "checkpoint" {
			continue
		}
		_, err := do(ctx)
		if err := errors.Join(err, advance(name)); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// lay writes the file and the given log to a directory.
func (t *tailer) lay(dir string, log []byte) (path string, err error) {
	if dir, err = t.sub(dir); err != nil {
		return "", err
	}
	path = filepath.Join(dir, "app.db")
	return path, errors.Join(os.WriteFile(path, t.file, 0o600), os.WriteFile(path+"-wal", log, 0o600))
}

// look opens the file with the given log and returns the number of steps in it.
func (t *tailer) look(ctx context.Context, log []byte) (k int, err error) {
	ctx = context.WithoutCancel(ctx)
	t.seen = log
	path, err := t.lay("image", log)
	if err != nil {
		return 0, err
	}
	found, err := stateOfFile(ctx, path)
	if err != nil {
		return 0, err
	}
	k = len(t.states) - 1
	for ; k >= 0 && t.states[k] != found; k-- {
	}
	if k < 0 {
		// The row of the group is written after opening and before the first recorded state.
		if n, err := t.early(ctx, path); err != nil || !n {
			return 0, errors.Join(errors.New("the file is in a state that was never committed"), err)
		}
		k = 0
	}
	return k, os.RemoveAll(filepath.Dir(path))
}

// early reports whether the file contains nothing of the script yet.
func (t *tailer) early(ctx context.Context, path string) (bool, error) {
	pool, err := plain(path)
	if err != nil {
		return false, err
	}
	defer pool.Close()
	return one[bool](ctx, pool, `SELECT NOT EXISTS (SELECT 1 FROM _honkerx_groups)`)
}

// flip flips single bits of the log.
func (t *tailer) flip(ctx context.Context) error {
	luck := rand.New(rand.NewPCG(t.Seed, 2))
	for i := 0; i < 200 && ctx.Err() == nil; i++ {
		log := append([]byte(nil), t.log...)
		at := luck.IntN(len(log))
		log[at] ^= 1 << luck.IntN(8)
		if _, err := t.look(ctx, log); err != nil {
			return fmt.Errorf("log damaged at %d of %d: %w", at, len(log), err)
		}
		t.Add("flips", 1)
	}
	return nil
}
