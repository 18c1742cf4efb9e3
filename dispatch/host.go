package dispatch

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// host is shared by the actors in a process. It refreshes the presence of all actors with a single
// write and reads the commands for all of them with a single reader. It runs while the process has
// an actor.
type host struct {
	id     hostID
	d      *Dispatcher // the first actor's dispatcher; all dispatchers with this ID are equivalent
	cancel context.CancelFunc
	loops  sync.WaitGroup

	mu       sync.Mutex
	sessions map[*session]struct{}
}

// hostID identifies a host. Actors with equal IDs share it.
type hostID struct {
	engine *engine.Engine
	prefix string
	ttl    time.Duration
}

// hosts holds the running hosts of this process.
var hosts = struct {
	mu   sync.Mutex
	byID map[hostID]*host
}{byID: make(map[hostID]*host)}

// joinHost adds s to its host, starting the host if s is the first session. The session receives
// all commands that are committed after joinHost returns.
func joinHost(ctx context.Context, s *session) (*host, error) {
	id := hostID{s.d.engine, s.d.keys.prefix(), s.d.opts.TTL}
	hosts.mu.Lock()
	defer hosts.mu.Unlock()
	h := hosts.byID[id]
	if h == nil {
		head, err := s.d.head(ctx)
		if err != nil {
			return nil, err
		}
		h = &host{id: id, d: s.d, sessions: make(map[*session]struct{})}
		var running context.Context
		running, h.cancel = context.WithCancel(context.WithoutCancel(ctx))
		h.loops.Go(func() { h.listen(running, head) })
		h.loops.Go(func() { engine.Every(running, id.ttl/3, func() time.Duration { return h.beat(running) }) })
		hosts.byID[id] = h
	}
	h.mu.Lock()
	h.sessions[s] = struct{}{}
	h.mu.Unlock()
	return h, nil
}

// leave removes s. When the last session leaves, the host stops and leave waits for its goroutines.
func (h *host) leave(s *session) {
	hosts.mu.Lock()
	defer hosts.mu.Unlock()
	h.mu.Lock()
	delete(h.sessions, s)
	left := len(h.sessions)
	h.mu.Unlock()
	if left > 0 {
		return
	}
	delete(hosts.byID, h.id)
	h.cancel()
	h.loops.Wait()
}

func (h *host) each(f func(*session)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.sessions {
		f(s)
	}
}

// beat refreshes the presence of all actors in a single statement and returns the delay until the
// next beat. An actor whose row has been deleted receives cmdLost.
func (h *host) beat(ctx context.Context) time.Duration {
	rows := make(map[string]*session)
	var all []row.DispatchPresence
	now := h.id.engine.Now()
	h.each(func(s *session) {
		if row, ok := s.presence(now); ok {
			all, rows[row.Key] = append(all, row), s
		}
	})
	if len(all) == 0 {
		return h.id.ttl / 3
	}
	var kept []string
	err := h.id.engine.Write(ctx, "", engine.SingleOp(func(ctx context.Context, q engine.Querier, _ time.Time) (err error) {
		kept, err = h.d.store.Beat(ctx, q, all)
		return err
	}))
	if err != nil {
		if ctx.Err() == nil && !engine.Final(err) {
			h.id.engine.Logger.Warn("honker: dispatch: presence was not refreshed, retrying", "error", err)
		}
		return min(h.id.ttl/3, time.Second)
	}
	for key, s := range rows {
		if !slices.Contains(kept, key) {
			s.tell(command{Cmd: cmdLost})
		}
	}
	return h.id.ttl / 3
}

// listen delivers the commands after the given offset until ctx ends.
func (h *host) listen(ctx context.Context, after int64) {
	topics := honker.NewStream[command](h.d.db, h.id.prefix+"q:ctl:*", nil)
	retry := engine.Retry{Log: h.id.engine.Logger, Message: "dispatch: commands could not be read, retrying"}
	for ctx.Err() == nil {
		var failed error
		for e, err := range topics.Tail(ctx, honker.Offset(after), nil) {
			if e == nil {
				failed = err
				break
			}
			after = e.Offset
			retry.Reset()
			if err == nil {
				h.tell(e)
			}
		}
		if ctx.Err() != nil {
			return
		}
		if engine.Final(failed) && !h.id.engine.Closing() {
			// A backup was restored over the file. Its commands are old, so continue after its last event.
			if head, err := h.d.head(ctx); err == nil {
				after, failed = head, nil
			}
		}
		if failed != nil && retry.After(ctx, failed) != nil {
			return
		}
	}
}

// tell delivers a command to the actors addressed by its topic.
func (h *host) tell(e *honker.Event[command]) {
	key, err := h.d.keys.Parse(e.Topic)
	if err != nil || key.Kind != KindControl || e.Data.Cmd == cmdPong {
		return
	}
	c := e.Data
	c.offset = e.Offset
	h.each(func(s *session) {
		if key.Target.covers(s.id) {
			s.tell(c)
		}
	})
}

// head returns an offset that is less than the offset of any later event.
func (d *Dispatcher) head(ctx context.Context) (head int64, err error) {
	err = d.engine.Read(ctx, func(ctx context.Context, q engine.Querier) (err error) {
		head, err = d.engine.Stores.Streams.Head(ctx, q)
		return err
	})
	return head, err
}
