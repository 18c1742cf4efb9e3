//go:build unix

package torture

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/testkit"
)

// Kills checks the guarantees for processes that crash. Child processes in various roles share a
// database and are killed at random moments. A server crashes too. The ledgers contain each child's
// intended and acknowledged operations. At the end all remaining work is completed, and the database
// is compared with the ledgers.
func Kills(ctx context.Context, r *Round) error {
	return jobStorm(&storm{Round: r, parts: parts, pause: 20 * time.Millisecond}).run(ctx)
}

// Crowd is like Kills, with twenty processes on the database, many in the same role.
func Crowd(ctx context.Context, r *Round) error {
	return jobStorm(&storm{Round: r, parts: manyParts, pause: 200 * time.Millisecond}).run(ctx)
}

// jobStorm sets up s for jobs, mails and events. All roles except those that create work complete
// the remaining work.
func jobStorm(s *storm) *storm {
	for _, name := range []string{"kills", "acked_lost", "phantoms", "duplicates", "order_violations", "unique_violations", "edge_violations", "limit_violations", "pause_violations"} {
		s.Add(name, 0)
	}
	for _, roles := range s.parts {
		rest := slices.DeleteFunc(slices.Clone(roles), func(role string) bool { return role == "producer" || role == "operator" })
		if len(rest) > 0 {
			s.rest = append(s.rest, rest)
		}
	}
	s.prepare, s.left, s.check = s.begin, s.workedOff, s.checkJobs
	return s
}

// run prepares the file, kills processes for a while, completes the remaining work and checks the
// result.
func (s *storm) run(ctx context.Context) (err error) {
	s.path, s.began = filepath.Join(s.Dir, "app.db"), time.Now()
	db, err := honker.Open(context.WithoutCancel(ctx), s.path, s.options())
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	s.db = db
	defer func() { s.end(); keep(s.path, &err) }()
	if err := s.makeTables(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	if s.prepare != nil {
		if err := s.prepare(context.WithoutCancel(ctx)); err != nil {
			return err
		}
	}
	if err := s.rage(ctx); err != nil {
		return err
	}
	if err := s.drain(); err != nil {
		return err
	}
	s.end()
	return s.check()
}

// patience is the BusyTimeout of all processes. It is long, because a busy disk can block all
// processes without any fault of the library.
const patience = time.Minute

// storm is a round of kills.
type storm struct {
	*Round
	parts  [][]string      // roles of each process
	pause  time.Duration   // longest pause between two kills, extended if processes start slowly
	clocks []time.Duration // offsets to which the children set their clocks; nil: the clocks are not changed
	span   time.Duration   // duration of the kills; 0: ten seconds
	freeze time.Duration   // if positive, processes are also suspended for up to twice as long

	prepare func(context.Context) error           // prepares the file before the first process starts; nil: only the tables are created
	rest    [][]string                            // roles of the processes that complete the remaining work
	left    func(context.Context) (string, error) // describes the remaining work; "" if there is none
	check   func() error                          // compares the file with the ledgers at the end

	few bool // only numberTables are needed

	path  string
	db    *honker.DB // the parent's DB, which only reads
	first time.Time  // first due time of the schedule
	began time.Time
	slots []*child
	born  int
}

// parts are the roles of the processes that run at the same time. The last process has a producer and
// a worker, so that jobs can be handed over directly.
var parts = [][]string{
	{"producer", "operator"},
	{"worker", "mailer", "counter", "stepper", "spender"},
	{"subscriber", "piper", "member"},
	{"producer", "worker", "member", "ticker", "counter", "stepper", "spender"},
}

// manyParts are the roles of twenty processes. Consumers and pipes must belong to a single process
// at a time.
var manyParts = slices.Concat(
	slices.Repeat([][]string{{"producer"}}, 4),
	slices.Repeat([][]string{{"worker", "mailer", "counter", "stepper", "spender"}}, 5),
	[][]string{{"subscriber", "piper", "member"}},
	slices.Repeat([][]string{{"member"}}, 4),
	slices.Repeat([][]string{{"producer", "worker", "member", "ticker"}}, 3),
	slices.Repeat([][]string{{"ticker"}}, 3))

// numberTables are the tables of the application that all rounds use.
var numberTables = []string{
	`CREATE TABLE effects (number BIGINT NOT NULL)`,
	`CREATE TABLE orders (number BIGINT NOT NULL)`,
}

// tables are the other tables of the application.
var tables = []string{
	`CREATE TABLE taken (number BIGINT NOT NULL, event BIGINT NOT NULL)`,
	countersTable,
}

// begin registers a schedule and sets the limits of queues.
func (s *storm) begin(ctx context.Context) (err error) {
	if err := s.db.Scheduler().Register(ctx, honker.Schedule{Name: "second", Queue: "fired", Spec: "@every 1s"}); err != nil {
		return err
	}
	if s.first, err = s.db.Scheduler().Soonest(ctx); err != nil {
		return err
	}
	return s.limit(ctx)
}

func (s *storm) makeTables(ctx context.Context) error {
	all := slices.Concat(numberTables, tables, linkTables, limitTables)
	if s.few {
		all = numberTables
	}
	for _, table := range all {
		if _, err := s.db.SQL().ExecContext(ctx, table); err != nil {
			return err
		}
	}
	return nil
}

func (s *storm) options() *honker.Options {
	return &honker.Options{Durability: honker.Durability(s.Seed % 2), BusyTimeout: patience}
}

// rage starts the children and kills one or all of them at random moments.
func (s *storm) rage(ctx context.Context) error {
	s.slots = make([]*child, len(s.parts))
	pause, err := s.longestPause()
	if err != nil {
		return err
	}
	for i := range s.slots {
		if err := s.spawn(i, s.parts[i], s.clocks); err != nil {
			return err
		}
	}
	crash := time.NewTicker(betweenCrashes)
	defer crash.Stop()
	for over := time.After(cmp.Or(s.Span, s.span, 10*time.Second)); ; {
		select {
		case <-over:
			return nil
		case <-ctx.Done():
			return nil
		case <-crash.C:
			if err := s.crash(); err != nil {
				return err
			}
			continue
		case <-time.After(time.Millisecond + time.Duration(s.Rand.Int64N(int64(pause)))):
		}
		if err := s.strike(); err != nil {
			return err
		}
	}
}

// betweenCrashes is the time between two crashes of a server.
const betweenCrashes = 2500 * time.Millisecond

// crash crashes the server and waits until it has recovered. On files it does nothing.
func (s *storm) crash() error {
	began := time.Now()
	crashed, err := testkit.CrashServer()
	if crashed && err == nil {
		s.Add("crashes", 1)
		s.Max("longest_recovery_ms", time.Since(began).Milliseconds())
	}
	return err
}

// longestPause returns the maximum pause between kills. It is a multiple of the time that a process
// needs to start and end, so that processes do some work before they are killed. On a server that takes
// longer, because the first calls of each connection are slow.
func (s *storm) longestPause() (time.Duration, error) {
	started := time.Now()
	if err := s.spawn(0, nil, nil); err != nil {
		return 0, err
	}
	<-s.slots[0].ended // without roles, it exits at once
	if err := s.slots[0].verdict(); err != nil {
		return 0, err
	}
	starts := 4
	if !testkit.OnFile() {
		starts = 10
	}
	return max(s.pause, time.Duration(starts)*time.Since(started)), nil
}

// strike suspends a process, or kills one or all, and starts new processes in their place.
func (s *storm) strike() error {
	if s.freeze > 0 && s.oneIn(8) {
		return s.stopAndGo()
	}
	victims := []int{s.Rand.IntN(len(s.slots))}
	if s.oneIn(10) {
		victims = s.Rand.Perm(len(s.slots))
	}
	for _, i := range victims {
		if err := s.slots[i].kill(); err != nil {
			return err
		}
		s.Add("kills", 1)
	}
	for _, i := range victims {
		if err := s.spawn(i, s.parts[i], s.clocks); err != nil {
			return err
		}
	}
	return nil
}

func (s *storm) spawn(slot int, roles []string, clocks []time.Duration) (err error) {
	s.born++
	s.slots[slot], err = spawn(part{
		Path: s.path, Roles: roles, Number: s.born, Began: s.began, Full: s.options().Durability == honker.Full, Clocks: clocks,
		Ledger: filepath.Join(s.Dir, fmt.Sprintf("ledger-%06d", s.born)),
	})
	return err
}

// end kills the remaining children.
func (s *storm) end() {
	for _, c := range s.slots {
		if c != nil {
			_ = c.kill()
		}
	}
	s.slots = nil
}

// drain lets new children complete the remaining work, without producers, pauses and kills. If the
// clocks were changed, those of the new children are past the end of all leases.
func (s *storm) drain() error {
	for _, c := range s.slots {
		if err := c.kill(); err != nil {
			return err
		}
	}
	s.slots = nil
	if err := resumeAll(context.Background(), s.db); err != nil {
		return err
	}
	s.slots = make([]*child, len(s.rest))
	for i, roles := range s.rest {
		if err := s.spawn(i, roles, s.afterAll()); err != nil {
			return err
		}
	}
	return s.until(2*patience, s.left)
}

// afterAll returns a clock offset that is greater than all earlier offsets.
func (s *storm) afterAll() []time.Duration {
	if s.clocks == nil {
		return nil
	}
	return []time.Duration{max(0, slices.Max(s.clocks)) + time.Minute}
}

// until polls left until no work remains. It fails when a child exits or after limit.
func (s *storm) until(limit time.Duration, left func(context.Context) (string, error)) error {
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for deadline := time.Now().Add(limit); ; <-look.C {
		missing, err := left(context.Background())
		if err != nil || missing == "" {
			return err
		}
		if time.Now().After(deadline) {
			s.Add("stuck", 1)
			return fmt.Errorf("after %v: %s", limit, missing)
		}
		for _, c := range s.slots {
			if err := c.alive(); err != nil {
				return err
			}
		}
	}
}

// workedOff describes the remaining work, or returns "".
func (s *storm) workedOff(ctx context.Context) (string, error) {
	// Dead jobs are requeued first, because other jobs may depend on them.
	if again, err := requeueDead(ctx, s.db); err != nil || again > 0 {
		return fmt.Sprint(again, " dead jobs wait again"), err
	}
	jobs, err := one[int](ctx, s.db.SQL(), `SELECT count(*) FROM _honker_live WHERE queue <> 'fired'`)
	if err != nil || jobs > 0 {
		return fmt.Sprint(jobs, " jobs are left"), err
	}
	if missing, err := s.pending(ctx); err != nil || missing != "" {
		return missing, err
	}
	events := honker.NewStream[int64](s.db, "events", nil)
	head, err := events.Head(ctx)
	if err != nil {
		return "", err
	}
	for _, consumer := range []string{"c", "doubler"} {
		at, err := events.Offset(ctx, consumer)
		if err := ignore(err, honker.ErrNotFound); err != nil || at < head {
			return fmt.Sprintf("%s is at %d of %d", consumer, at, head), err
		}
	}
	info, err := events.Group("g", nil).Info(ctx)
	if errors.Is(err, honker.ErrNotFound) || err == nil && info.LowWater < head {
		return fmt.Sprintf("the group is at %d of %d", info.LowWater, head), nil
	}
	return "", err
}

// pending describes the work that a server has to do after commits, or returns "".
func (s *storm) pending(ctx context.Context) (string, error) {
	n, err := one[int](ctx, s.db.SQL(), testkit.CountPending)
	if err != nil || n > 0 {
		return fmt.Sprint(n, " rows wait for work after their commits"), err
	}
	return "", nil
}
