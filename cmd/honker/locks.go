package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
)

var lockView = view[admin.LockInfo]{
	columns: []column[admin.LockInfo]{
		{"name", func(l admin.LockInfo) cell { return text(l.Name) }},
		{"owner", func(l admin.LockInfo) cell { return text(l.Owner) }},
		{"expires_at", func(l admin.LockInfo) cell { return when(l.ExpiresAt) }},
		{"leads", func(l admin.LockInfo) cell { return truth(l.Leads) }},
	},
	name: func(l admin.LockInfo) string { return l.Name },
}

func (a *app) locks() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "locks",
		Short: "List held locks and their holders",
		Long: `locks lists the held locks, the time at which each expires unless it is renewed, and whether it is used internally by the
process that fires schedules or maintains the file.`,
		GroupID: groupLook,
		Args:    cobra.NoArgs,
	}
	a.prints(cmd, lockView)
	return a.does(cmd, func(ctx context.Context, _ []string) error {
		return a.look(ctx, func(db *honker.DB) error {
			locks, err := admin.Locks(ctx, db)
			if err != nil {
				return err
			}
			return many(a, lockView, locks, "locks are held")
		})
	})
}

func (a *app) lock() *cobra.Command {
	return parent("lock", "Run a command under a lock, or break a lock", groupChange, a.lockRun(), a.lockBreak())
}

func (a *app) lockRun() *cobra.Command {
	var opts honker.LockOptions
	var wait time.Duration
	grace := 20 * time.Second
	cmd := &cobra.Command{
		Use:   "run NAME -- COMMAND [ARG...]",
		Short: "Run a command while holding a lock",
		Long: `run runs a command while it holds a lock, so that only one process on the file runs it at a time. It works like flock,
but across all containers that share the file. If the lock is held, run exits with code 1 without running the command, unless
--wait is given. Otherwise the exit code is that of the command.

The command gets HONKER_FILE or HONKER_DSN, HONKER_LOCK and HONKER_LOCK_TOKEN in its environment. The token is a number that increases each
time the lock is taken. SIGTERM and SIGINT are passed on to the command. If the lock is lost, because the machine was suspended
or an operator broke the lock, the command gets SIGTERM, and SIGKILL after --grace.`,
		Example: `  0 3 * * * honker lock run nightly -f /srv/app.db -- /srv/nightly.sh
  honker lock run deploy --wait 10m -- ./deploy.sh`,
		Args:              afterDash(1),
		ValidArgsFunction: a.completeLock,
		Annotations:       map[string]string{nameless: "yes"},
	}
	flags := cmd.Flags()
	flags.Var(spanFlag{&wait}, "wait", "wait this long for the lock; default: do not wait")
	flags.Var(spanFlag{&opts.TTL}, "ttl", "how long the lock stays held after this process dies; default 1m")
	flags.StringVar(&opts.Owner, "owner", "", "unique `name` of the holder; default host-pid-random")
	flags.Var(spanFlag{&grace}, "grace", "time between SIGTERM and SIGKILL")
	return a.does(cmd, func(ctx context.Context, args []string) error {
		if err := program(args[1:]); err != nil {
			return err
		}
		return a.serve(ctx, nil, func(db *honker.DB) error {
			lock, err := a.take(ctx, db, args[0], wait, &opts)
			if err != nil {
				return err
			}
			return a.runUnder(ctx, lock, args[1:], grace)
		})
	})
}

// take acquires a lock, waiting no longer than wait.
func (a *app) take(ctx context.Context, db *honker.DB, name string, wait time.Duration, opts *honker.LockOptions) (*honker.Lock, error) {
	lock, err := db.TryLock(ctx, name, opts)
	if !errors.Is(err, honker.ErrLockHeld) {
		return lock, err
	}
	held := &coded{code: codeNo, err: err, try: a.command("locks")}
	if wait <= 0 {
		return nil, held
	}
	// Use a cancel and a timer instead of a timeout: the lock's ctx is derived from this ctx and would inherit its
	// deadline.
	waiting, stop := context.WithCancel(ctx)
	over := time.AfterFunc(wait, stop)
	lock, err = db.Lock(waiting, name, opts)
	if err != nil && ctx.Err() == nil && waiting.Err() != nil {
		return nil, held
	}
	if err == nil && !over.Stop() {
		return nil, errors.Join(lock.Unlock(context.WithoutCancel(ctx)), held)
	}
	if err != nil {
		stop()
	}
	return lock, err
}

// runUnder runs a command while holding the lock. It terminates the command if the lock is lost.
func (a *app) runUnder(ctx context.Context, lock *honker.Lock, argv []string, grace time.Duration) error {
	d, err := a.database(ctx)
	if err != nil {
		return err
	}
	held := lock.Context()
	ran := child{
		argv: argv, grace: grace, shared: a.inTerm, stdin: a.stdin, stdout: a.stdout, stderr: a.stderr,
		env: append(a.environment(d), "HONKER_LOCK="+lock.Name(), "HONKER_LOCK_TOKEN="+strconv.FormatInt(lock.Token(), 10)),
	}.run(held)
	lost := errors.Is(context.Cause(held), honker.ErrLockLost)
	unlocked := lock.Unlock(context.WithoutCancel(ctx))
	if lost {
		return &coded{code: codeRefused, err: fmt.Errorf("the command was ended: %w", context.Cause(held)), try: a.command("locks")}
	}
	code, ok := exitCode(ran)
	switch {
	case !ok:
		return fmt.Errorf("run the command: %w", errors.Join(ran, unlocked))
	case unlocked != nil:
		return unlocked
	case code != 0:
		return &coded{code: code}
	}
	return nil
}

// broken reports a lock that was broken.
type broken struct {
	Name  string
	Owner string // previous owner
}

var brokenView = view[broken]{
	columns: []column[broken]{
		{"name", func(b broken) cell { return text(b.Name) }},
		{"owner", func(b broken) cell { return text(b.Owner) }},
	},
	name: func(b broken) string { return b.Name },
}

func (a *app) lockBreak() *cobra.Command {
	var owner string
	cmd := &cobra.Command{
		Use:        "break NAME",
		SuggestFor: []string{"unlock", "rm"},
		Short:      "Take a lock away from its holder",
		Long: `break takes a lock away from its holder. The holder continues until it notices at the next renewal, so break a lock only
if its holder is gone or hangs. With --owner, the lock is broken only if this owner still holds it. The exit code is 1 if the
lock is not held.`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeLock,
	}
	cmd.Flags().StringVar(&owner, "owner", "", "break the lock only if this `name` holds it")
	a.prints(cmd, brokenView)
	return a.does(cmd, func(ctx context.Context, args []string) error {
		return a.change(ctx, func(db *honker.DB) error { return a.breakLock(ctx, db, args[0], owner) })
	})
}

func (a *app) breakLock(ctx context.Context, db *honker.DB, name, owner string) error {
	if owner == "" {
		locks, err := admin.Locks(ctx, db)
		if err != nil {
			return err
		}
		for _, lock := range locks {
			if lock.Name == name {
				owner = lock.Owner
			}
		}
	}
	free := &coded{code: codeNo, err: fmt.Errorf("lock %q is not held", name), try: a.command("locks")}
	if owner == "" {
		return free
	}
	was, err := admin.BreakLock(ctx, db, name, owner)
	switch {
	case err != nil:
		return err
	case !was:
		free.err = fmt.Errorf("lock %q is not held by %s", name, owner)
		return free
	}
	return one(a, brokenView, broken{Name: name, Owner: owner})
}

func (a *app) completeLock(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	return a.complete(cmd, func(ctx context.Context, db *honker.DB) ([]string, error) {
		locks, err := admin.Locks(ctx, db)
		return words(locks, func(l admin.LockInfo) string { return l.Name }), err
	})
}
