package main

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/dispatch"
)

//go:embed schema.sql
var schema string

// supervisor sends jobs, and starts, kills and stops the actors that run them.
type supervisor struct {
	config
	db        *honker.DB
	d         *dispatch.Dispatcher
	processes []*process
	w         io.Writer
}

func open(ctx context.Context, c config, w io.Writer) (*supervisor, error) {
	if err := os.MkdirAll(filepath.Dir(c.db), 0o755); err != nil {
		return nil, err
	}
	db, err := honker.Open(ctx, c.db, nil)
	if err != nil {
		return nil, err
	}
	if _, err := db.SQL().ExecContext(ctx, schema); err != nil {
		return nil, errors.Join(fmt.Errorf("create tables: %w", err), db.Close())
	}
	return &supervisor{config: c, db: db, d: dispatch.New(db, &dispatch.Options{TTL: ttl}), w: w}, nil
}

// close kills the processes that are still running and closes the database.
func (s *supervisor) close() error {
	for _, p := range s.processes {
		if p.fate == "" {
			_ = p.kill()
		}
	}
	return s.db.Close()
}

// process is a child process that runs an actor.
type process struct {
	name  string
	cmd   *exec.Cmd
	stdin io.Closer // closing it makes the process exit
	ended chan struct{}
	err   error  // set before ended is closed
	fate  string // killed or stopped; empty while it runs
}

// start runs this program again as an actor.
func (s *supervisor) start(id dispatch.Identity, more ...string) (*process, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{name: id.Type + "-" + id.Instance, ended: make(chan struct{})}
	args := []string{childCommand, "-db", s.config.db, "-name", p.name, "-type", id.Type, "-group", id.Group,
		"-instance", id.Instance, "-work", s.work.String()}
	p.cmd = exec.Command(program, append(args, more...)...)
	p.cmd.Stderr = os.Stderr
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	s.processes = append(s.processes, p)
	return p, nil
}

// kill kills a process, as a crash would.
func (p *process) kill() error {
	err := p.cmd.Process.Kill()
	<-p.ended
	p.fate = "killed"
	return err
}

// end waits for a process that was asked to stop.
func (p *process) end(ctx context.Context) error {
	select {
	case <-p.ended:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	p.fate = "stopped"
	if p.err != nil {
		return fmt.Errorf("%s: %w", p.name, p.err)
	}
	return nil
}

// alive returns an error if a process has exited without being killed or stopped.
func (s *supervisor) alive() error {
	for _, p := range s.processes {
		select {
		case <-p.ended:
			if p.fate == "" {
				return fmt.Errorf("%s: %w", p.name, errors.Join(p.err, errEnded))
			}
		default:
		}
	}
	return nil
}

var errEnded = errors.New("process exited without being stopped")

// until polls done until it returns true. It fails if a process exits in the meantime.
func (s *supervisor) until(ctx context.Context, done func(context.Context) (bool, error)) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if ok, err := done(ctx); ok || err != nil {
			return err
		}
		if err := s.alive(); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// startAll starts actors of the same type and waits until all of them are listed as alive.
func (s *supervisor) startAll(ctx context.Context, ids []dispatch.Identity, more ...string) error {
	for _, id := range ids {
		if _, err := s.start(id, more...); err != nil {
			return err
		}
	}
	return s.until(ctx, func(ctx context.Context) (bool, error) {
		living, err := s.d.Actors(ctx, dispatch.Target{Type: ids[0].Type})
		return len(living) == len(ids), err
	})
}

// stopType stops all actors of a type and waits for their processes to exit.
func (s *supervisor) stopType(ctx context.Context, kind string) error {
	told, err := s.d.Stop(ctx, dispatch.Target{Type: kind})
	if err != nil {
		return err
	}
	fmt.Fprintf(s.w, "   stop type %s: %d actors were told\n", kind, told)
	for _, p := range s.processes {
		if p.fate == "" {
			_ = p.stdin.Close() // old actors do not know the stop message of dispatch
			if err := p.end(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// send sends numbered jobs of a scenario, 500 in each transaction.
func (s *supervisor) send(ctx context.Context, scenario string, t dispatch.Target, jobs int) error {
	const each = 500
	for first := 1; first <= jobs; first += each {
		err := s.db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			for n := first; n < first+each && n <= jobs; n++ {
				if _, err := s.d.SendTx(ctx, tx, t, job{scenario, n}); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// doneAtLeast returns a condition for until, which holds once the given number of the scenario's
// jobs are done.
func (s *supervisor) doneAtLeast(scenario string, jobs int) func(context.Context) (bool, error) {
	return func(ctx context.Context) (bool, error) {
		var n int
		err := s.db.SQL().QueryRowContext(ctx, `SELECT count(*) FROM done WHERE scenario = ?`, scenario).Scan(&n)
		return n >= jobs, err
	}
}
