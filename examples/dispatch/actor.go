package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/dispatch"
)

// childCommand is the first argument that makes this program run as an actor.
const childCommand = "actor"

const (
	// A killed process keeps its jobs until the lease expires and its name until the TTL does.
	lease, ttl = time.Second, 3 * time.Second
	// drain is how long a stopped process may take to finish its running job.
	drain = 2 * time.Second
)

// job is the payload that is sent to actors.
type job struct {
	Scenario string `json:"scenario"`
	Number   int    `json:"number"`
}

// actor is a process that runs jobs.
type actor struct {
	path, name string
	id         dispatch.Identity
	old        bool // an actor from before dispatch was introduced
	legacy     bool // also takes jobs from the old queue
	work       time.Duration

	db  *honker.DB
	ran *os.File // log of started jobs; kept outside the database, so that it survives a rollback
}

// runChild runs an actor until it is stopped or stdin is closed, which happens when the supervisor
// dies.
func runChild(ctx context.Context, args []string, stdin io.Reader, stderr io.Writer) int {
	ctx, end := context.WithCancel(ctx)
	defer end()
	go func() {
		_, _ = io.Copy(io.Discard, stdin)
		end()
	}()
	a := &actor{}
	f := flag.NewFlagSet("dispatch "+childCommand, flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&a.path, "db", "", "")
	f.StringVar(&a.name, "name", "", "")
	f.StringVar(&a.id.Type, "type", "", "")
	f.StringVar(&a.id.Group, "group", "", "")
	f.StringVar(&a.id.Instance, "instance", "", "")
	f.BoolVar(&a.old, "old", false, "")
	f.BoolVar(&a.legacy, "legacy", false, "")
	f.DurationVar(&a.work, "work", 0, "")
	if f.Parse(args) != nil {
		return 2
	}
	if err := a.run(ctx); err != nil {
		fmt.Fprintln(stderr, a.name+":", err)
		return 1
	}
	return 0
}

func (a *actor) run(ctx context.Context) (err error) {
	if a.ran, err = os.OpenFile(ledgerOf(a.path, a.name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.ran.Close()) }()
	if a.db, err = honker.Open(ctx, a.path, nil); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.db.Close()) }()
	if a.old {
		return a.runOld(ctx)
	}
	o := &dispatch.Options{TTL: ttl}
	if a.legacy {
		o.Legacy = dispatch.LegacyReadOnly
	}
	return dispatch.NewActor(dispatch.New(a.db, o), a.id, a.handle, &dispatch.ActorOptions{Lease: lease, DrainTimeout: drain}).Run(ctx)
}

// ledgerOf returns the path of the file in which a process logs the jobs that it starts.
func ledgerOf(db, process string) string { return filepath.Join(filepath.Dir(db), process+".ran") }

// handle finishes each task in the transaction that records it in the table done. A job is
// therefore recorded once, even if a killed process had already started it.
func (a *actor) handle(ctx context.Context, t *dispatch.Task[job]) (any, error) {
	if err := a.begin(ctx, t.Args); err != nil {
		return nil, err
	}
	return nil, a.db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		return errors.Join(a.done(ctx, tx, t.Args), t.FinishTx(ctx, tx, a.name))
	})
}

// runOld works the old queue for its type, as actors did before dispatch was introduced.
func (a *actor) runOld(ctx context.Context) error {
	queue := honker.NewQueue[job](a.db, dispatch.Keys{}.LegacyActorQueue(a.id.Type), nil)
	return queue.Work(ctx, func(ctx context.Context, j *honker.Job[job]) error {
		if err := a.begin(ctx, j.Args); err != nil {
			return err
		}
		return a.db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			return errors.Join(a.done(ctx, tx, j.Args), j.AckTx(ctx, tx))
		})
	}, &honker.WorkOptions{Workers: 1, Lease: lease, DrainTimeout: drain})
}

// begin logs the start of the job and simulates its work.
func (a *actor) begin(ctx context.Context, j job) error {
	if _, err := fmt.Fprintln(a.ran, j.Scenario, j.Number); err != nil {
		return err
	}
	select {
	case <-time.After(a.work):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (a *actor) done(ctx context.Context, tx *sql.Tx, j job) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO done VALUES (?, ?, ?)`, j.Scenario, j.Number, a.name)
	return err
}
