package dispatch

import (
	"context"
	"crypto/rand"
	"errors"
	"maps"
	"math"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/worker"
)

// errDrained is the cancellation cause for handlers that are still running after DrainTimeout.
var errDrained = errors.New("the actor has ended")

// session is the state of a single call to Actor.Run.
//
// The goroutine that called Run processes commands. A second goroutine calls Work, which claims jobs. When the set
// of queues changes or a pause begins, the session cancels Work's context. Work then stops claiming, but its
// handlers keep running and may overlap with those of the next call to Work. All handlers share a pool that limits
// how many run at once.
type session struct {
	d       *Dispatcher
	id      Identity
	opts    ActorOptions
	key     string
	token   string
	started time.Time
	pool    *honker.Pool
	work    func(ctx context.Context, queues []string, o *honker.WorkOptions) error

	signal chan struct{} // signals a new command; has capacity 1
	works  sync.WaitGroup
	ended  chan error // receives Work's error if it fails

	mu         sync.Mutex
	registered bool
	paused     bool
	commands   []command
	tasks      map[int64]*running
}

// running describes a task whose handler is running.
type running struct {
	cancel   context.CancelCauseFunc
	giveBack func(context.Context) error // releases the task without using up an attempt
	stopped  bool
}

func newSession(d *Dispatcher, id Identity, o ActorOptions) *session {
	return &session{
		d: d, id: id, opts: o, key: d.keys.Presence(id), token: rand.Text()[:10], started: d.engine.Now(),
		pool: honker.NewPool(o.Workers), signal: make(chan struct{}, 1), ended: make(chan error, 1), tasks: make(map[int64]*running),
	}
}

// run runs the actor until ctx ends, the actor is stopped, or the DB is closed.
func (s *session) run(ctx context.Context) error {
	run, leave, err := s.d.engine.Enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	err = s.live(run)
	switch {
	case errors.Is(context.Cause(run), honker.ErrClosed):
		return honker.ErrClosed
	case ctx.Err() != nil:
		return nil
	}
	return err
}

func (s *session) live(ctx context.Context) error {
	// Join before registering, so no command committed after the registration is missed.
	h, err := joinHost(ctx, s)
	if err != nil {
		return err
	}
	defer h.leave(s)
	head, err := s.register(ctx)
	if err != nil {
		return err
	}
	defer s.unregister(ctx)
	s.d.enter(s)
	defer s.d.leave(s)
	err = s.serve(ctx, head)
	s.drain(ctx)
	return err
}

// register writes the actor's presence row. It returns the offset of the last event before the registration.
// Commands up to that offset must be ignored.
func (s *session) register(ctx context.Context) (head int64, err error) {
	err = s.d.engine.Write(ctx, "", engine.OpFunc(func(ctx context.Context, q engine.Querier, now time.Time) error {
		entered, err := s.d.store.Register(ctx, q, s.row(now), now)
		if err != nil {
			return err
		}
		if !entered {
			return ErrInstanceTaken
		}
		head, err = s.d.engine.Stores.Streams.Head(ctx, q)
		return err
	}))
	if err == nil {
		s.mu.Lock()
		s.registered = true
		s.mu.Unlock()
	}
	return head, err
}

// leaveTimeout limits an actor's last write. If the write fails, the presence expires after the TTL.
const leaveTimeout = 2 * time.Second

func (s *session) unregister(ctx context.Context) {
	s.mu.Lock()
	s.registered = false
	s.mu.Unlock()
	// ctx has usually ended by now, but the name must be released.
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
	defer cancel()
	err := s.d.engine.Write(last, "", engine.SingleOp(func(ctx context.Context, q engine.Querier, _ time.Time) error {
		_, err := s.d.store.Leave(ctx, q, s.key, s.token)
		return err
	}))
	if err != nil && !engine.Final(err) {
		s.d.engine.Logger.Warn("honker: dispatch: an actor that has ended could not be unregistered; its name will expire", "actor", s.key, "error", err)
	}
}

// presence returns the actor's presence row and reports whether the actor is registered.
func (s *session) presence(now time.Time) (row.DispatchPresence, bool) {
	s.mu.Lock()
	registered := s.registered
	s.mu.Unlock()
	return s.row(now), registered
}

func (s *session) row(now time.Time) row.DispatchPresence {
	s.mu.Lock()
	inFlight, paused := len(s.tasks), s.paused
	s.mu.Unlock()
	host, _ := os.Hostname()
	return row.DispatchPresence{
		Key: s.key, Owner: s.token, ExpiresAt: now.Add(s.d.opts.TTL),
		PID: os.Getpid(), Hostname: host, StartedAt: s.started, Version: s.id.Version, Capabilities: s.id.Capabilities,
		LastHeartbeat: now, InFlight: inFlight, Busy: inFlight >= s.opts.Workers, Paused: paused,
	}
}

// tell queues a command for the session. It does not block.
func (s *session) tell(c command) {
	s.mu.Lock()
	s.commands = append(s.commands, c)
	s.mu.Unlock()
	select {
	case s.signal <- struct{}{}:
	default:
	}
}

func (s *session) takeMail() []command {
	s.mu.Lock()
	defer s.mu.Unlock()
	mail := s.commands
	s.commands = nil
	return mail
}

// serve claims jobs and processes commands until ctx ends, the actor is stopped, or Work fails. It restarts Work
// whenever the set of queues or the paused state changes.
func (s *session) serve(ctx context.Context, head int64) error {
	for n := 1; ; n++ {
		stop := s.startWork(ctx, n)
		end, err := s.processCommands(ctx, head)
		stop()
		if end {
			return err
		}
	}
}

// startWork calls Work for the current queues in a new goroutine, unless the actor is paused. stop stops Work from
// claiming jobs but leaves its handlers running.
func (s *session) startWork(ctx context.Context, n int) (stop func()) {
	if s.isPaused() {
		return func() {}
	}
	queues := append(s.d.keys.lanes(s.id, s.d.opts.Prios), s.d.legacyLanes(s.id)...)
	claiming, stop := context.WithCancel(ctx)
	o := &honker.WorkOptions{
		Workers: s.opts.Workers, WorkerID: workerID(s.key, s.token+"-"+strconv.Itoa(n)), Lease: s.opts.Lease, Pool: s.pool,
		DrainTimeout: math.MaxInt64, // drain limits the time instead
		OnError:      s.opts.OnError, Middleware: s.opts.Middleware,
	}
	s.works.Go(func() {
		if err := s.work(claiming, queues, o); err != nil && claiming.Err() == nil {
			select {
			case s.ended <- err:
			default:
			}
		}
	})
	return stop
}

func (s *session) isPaused() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.paused
}

// processCommands processes commands until the session must end or Work must be restarted. end reports which.
func (s *session) processCommands(ctx context.Context, head int64) (end bool, err error) {
	for {
		changed := false
		for _, c := range s.takeMail() {
			if c.offset != 0 && c.offset <= head {
				continue // sent before the actor started
			}
			switch c.Cmd {
			case cmdStop:
				return true, nil
			case cmdLost:
				_, err := s.register(ctx)
				if errors.Is(err, ErrInstanceTaken) || engine.Final(err) {
					return true, err
				}
				s.report(ctx, "the actor could not be registered again, retrying", err) // the next beat will notice the missing row again
			default:
				changed = s.apply(ctx, c) || changed
			}
		}
		if changed {
			return false, nil
		}
		select {
		case <-s.signal:
		case err := <-s.ended:
			return true, err
		case <-ctx.Done():
			return true, nil
		}
	}
}

// apply executes a command that does not end the actor. changed reports whether Work must be restarted.
func (s *session) apply(ctx context.Context, c command) (changed bool) {
	switch c.Cmd {
	case cmdPause, cmdResume:
		pause := c.Cmd == cmdPause
		s.mu.Lock()
		changed = s.paused != pause
		s.paused = pause
		s.mu.Unlock()
		s.show(ctx)
	case cmdLanes:
		changed = true
	case cmdStopJob:
		s.stopTask(ctx, c.ID)
	case cmdPing:
		topic := s.d.keys.Control(s.id.target())
		_, err := s.d.topic(topic).Publish(ctx, command{Cmd: cmdPong, ID: c.offset}, honker.EventKey(cmdPong))
		s.report(ctx, "a ping could not be answered", err)
		s.d.retain(ctx, topic)
	}
	return changed
}

// show refreshes the presence row immediately, so that others see a state change.
func (s *session) show(ctx context.Context) {
	r, _ := s.presence(s.d.engine.Now())
	s.report(ctx, "the presence could not be refreshed for a pause", s.d.engine.Write(ctx, "", engine.SingleOp(
		func(ctx context.Context, q engine.Querier, _ time.Time) error {
			_, err := s.d.store.Beat(ctx, q, []row.DispatchPresence{r})
			return err
		})))
}

// report logs an error that does not end the session. It logs nothing once ctx has ended.
func (s *session) report(ctx context.Context, what string, err error) {
	if err != nil && ctx.Err() == nil {
		s.d.engine.Logger.Warn("honker: dispatch: "+what, "actor", s.key, "error", err)
	}
}

// begin adds a running task and returns the context for its handler. The caller must call end when
// the handler has returned.
func (s *session) begin(ctx context.Context, id int64, giveBack func(context.Context) error) (run context.Context, end func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	t := &running{cancel: cancel, giveBack: giveBack}
	s.mu.Lock()
	s.tasks[id] = t
	s.mu.Unlock()
	return ctx, func() {
		s.mu.Lock()
		if s.tasks[id] == t {
			delete(s.tasks, id)
		}
		stopped := t.stopped || errors.Is(context.Cause(ctx), honker.ErrCancelled)
		s.mu.Unlock()
		cancel(nil)
		if stopped {
			s.endStopped(context.WithoutCancel(ctx), id)
		}
	}
}

// stopTask cancels the handler of a stopped task. If no handler is running the task anymore, stopTask records that
// it has ended.
func (s *session) stopTask(ctx context.Context, id int64) {
	s.mu.Lock()
	t := s.tasks[id]
	if t != nil {
		t.stopped = true
		t.cancel(honker.ErrCancelled)
	}
	s.mu.Unlock()
	if t == nil {
		s.endStopped(ctx, id)
	}
}

func (s *session) endStopped(ctx context.Context, id int64) {
	s.report(ctx, "the end of a stopped task could not be recorded", s.d.engine.Write(ctx, "", engine.OpFunc(
		func(ctx context.Context, q engine.Querier, now time.Time) error {
			return s.d.store.EndStopped(ctx, q, id, now)
		})))
}

// drain waits for the handlers. It cancels their contexts after DrainTimeout and releases their tasks after
// another CancelGrace, as Work does.
func (s *session) drain(ctx context.Context) {
	done := make(chan struct{})
	go func() {
		s.works.Wait()
		close(done)
	}()
	for _, step := range []struct {
		after time.Duration
		do    func()
	}{{s.opts.DrainTimeout, s.endHandlers}, {worker.CancelGrace, func() { s.giveBack(ctx) }}} {
		select {
		case <-done:
			return
		case <-time.After(step.after):
			step.do()
		}
	}
	<-done
}

func (s *session) endHandlers() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.tasks {
		t.cancel(errDrained)
	}
}

// giveBack releases the tasks of handlers that ignore their canceled context. Run still waits for those handlers.
func (s *session) giveBack(ctx context.Context) {
	s.mu.Lock()
	tasks := maps.Clone(s.tasks)
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
	defer cancel()
	for id, t := range tasks {
		if !s.runs(id, t) {
			continue
		}
		err := t.giveBack(ctx)
		if errors.Is(err, honker.ErrClaimLost) { // the task has since been settled or stopped
			continue
		}
		s.d.engine.Logger.Warn("honker: dispatch: a handler is still running after its context was cancelled; its task was released",
			"actor", s.key, "job", id, "error", err)
	}
}

// runs reports whether t's handler is still running.
func (s *session) runs(id int64, t *running) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tasks[id] == t
}

// enter registers s so that SetLegacy can notify it.
func (d *Dispatcher) enter(s *session) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sessions[s] = struct{}{}
}

func (d *Dispatcher) leave(s *session) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.sessions, s)
}
