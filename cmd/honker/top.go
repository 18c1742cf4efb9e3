package main

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/spf13/cobra"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
)

// reading is the data shown in a frame.
type reading struct {
	File     *admin.FileInfo     // nil for a server
	Database *admin.DatabaseInfo // nil for a file
	Problems []problemGroup
	Queues   []honker.QueueStats
	Flows    map[string]flow // by queue; "" for the total
	Workers  int             // workers that are, or may be, alive
	Commits  *float64        // commits per second, a lower bound; nil if not counted
	At       time.Time
}

// count stores the current commit rate.
func (r *reading) count(commits *commitCount) {
	rate := commits.rate(r.At)
	r.Commits = &rate
}

// still reports whether the frame will look the same a minute from now.
func (r *reading) still() bool { return r.Flows[""].still() && (r.Commits == nil || *r.Commits == 0) }

// betweenFrames is the minimum time between reads of the file while commits keep coming.
const betweenFrames = 250 * time.Millisecond

func (a *app) top() *cobra.Command {
	once := false
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show problems and queues live",
		Long: `top shows problems and the state of each queue, and updates them after commits of any process, at most four times a second.
While nothing is committed it does not read the file. The time at the top is that of the last reading, and the space bar
reads again. The commits are those of all processes in the last minute. They are a lower bound, because commits in quick
succession are seen as a single change. IN/s, OUT/s and FAIL/s count jobs added, jobs done and failed attempts in the last minute.
RAN is the mean run time of handlers, and the last column shows the attempts in each of the last ten minutes, in red if most failed.

Queues with problems come first. Keys choose another order, pause and resume a queue, and show its next jobs, why none of them runs, and its dead jobs by error. Press ? for a list.`,
		Example: `  honker top -f app.db
  honker top --once | mail -s queues ops@example.com`,
		GroupID:     groupLook,
		Args:        cobra.NoArgs,
		Annotations: map[string]string{nameless: "yes"},
	}
	cmd.Flags().BoolVar(&once, "once", false, "print a single frame, for use in a pipe")
	return a.does(cmd, func(ctx context.Context, _ []string) error {
		switch {
		case a.format != "" && a.format != formatTable:
			return usage("honker status -o json", "top is for people, not for -o %s", a.format)
		case once:
			return a.look(ctx, func(db *honker.DB) error { return a.printFrame(ctx, db) })
		case !a.inTerm || !a.outTerm || a.getenv("TERM") == "dumb":
			return usage("honker top --once", "top needs a terminal")
		}
		return a.watch(ctx, func(db *honker.DB) error { return a.runTop(ctx, db) })
	})
}

// printFrame prints a single frame at its full width.
func (a *app) printFrame(ctx context.Context, db *honker.DB) error {
	r, err := a.readTop(ctx, db)
	if err != nil {
		return err
	}
	f := frame{reading: r, color: a.color}
	for _, line := range f.lines() {
		if _, err := a.out.WriteString(line + "\n"); err != nil {
			return err
		}
	}
	return nil
}

// readTop reads the data for a frame.
func (a *app) readTop(ctx context.Context, db *honker.DB) (r reading, err error) {
	r.At = time.Now()
	if admin.IsFile(db) {
		r.File, err = admin.File(ctx, db)
	} else {
		r.Database, err = admin.Database(ctx, db)
	}
	if err != nil {
		return r, err
	}
	s, groups, err := a.statusOf(ctx, db)
	if err != nil {
		return r, err
	}
	r.Problems, r.Queues = groups, s.Queues
	workers, err := admin.Workers(ctx, db)
	if err != nil {
		return r, err
	}
	r.Workers = living(workers)
	r.Flows, err = flows(ctx, db, r.At)
	return r, err
}

// living counts the workers that are, or may be, alive.
func living(workers []admin.WorkerInfo) (n int) {
	for _, w := range workers {
		if w.Alive != admin.Gone {
			n++
		}
	}
	return n
}

// flows returns the traffic of all queues, by name.
func flows(ctx context.Context, db *honker.DB, now time.Time) (map[string]flow, error) {
	all, err := admin.TrafficAll(ctx, db, now.Add(-flowMinutes*time.Minute))
	out := make(map[string]flow, len(all))
	for name, minutes := range all {
		out[name] = flowOf(minutes, now)
	}
	return out, err
}

// runTop shows frames until the user quits or ctx ends. When nothing changes, the only cost is the renderer, which
// checks for a new frame 10 times per second.
func (a *app) runTop(ctx context.Context, db *honker.DB) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	commits := newCommitCount()
	screen := tea.NewProgram(newTopModel(ctx, a, db, commits), tea.WithContext(ctx), tea.WithInput(a.stdin), tea.WithOutput(a.stdout),
		tea.WithEnvironment(os.Environ()), tea.WithFPS(10), tea.WithoutSignalHandler())
	watched := make(chan error, 1)
	go func() {
		watched <- a.watchTop(ctx, db, commits, func(r reading) { screen.Send(r) })
		screen.Quit() // the error is delivered through watched
	}()
	_, err := screen.Run()
	stop()
	failed := <-watched
	if errors.Is(err, tea.ErrProgramKilled) || errors.Is(err, context.Canceled) {
		err = nil
	}
	return errors.Join(err, failed)
}

// watchTop counts commits, rereads the file after them, and passes each reading to show.
func (a *app) watchTop(ctx context.Context, db *honker.DB, commits *commitCount, show func(reading)) error {
	ctx, stop := context.WithCancel(ctx)
	var counting sync.WaitGroup
	counting.Go(func() { commits.follow(ctx, db) })
	defer counting.Wait()
	defer stop()
	for _, err := range db.Updates(ctx) {
		if err != nil {
			return err
		}
		r, err := a.readTop(ctx, db)
		if err != nil {
			return unlessEnded(ctx, err)
		}
		r.count(commits)
		show(r)
		pause(ctx, betweenFrames)
	}
	return nil
}
