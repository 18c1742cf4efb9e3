package dispatch

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/store"
)

// host is what the actors of one process share: one write refreshes the presence of all, and one tail
// reads the commands for all. It runs while there is one of them.
type host struct {
	id     hostID
	d      *Dispatcher // of the first actor: any of the same id would do
	cancel context.CancelFunc
	loops  sync.WaitGroup

	mu       sync.Mutex
	sessions map[*session]struct{}
}

// hostID is what actors have in common that share a host.
type hostID struct {
	engine *engine.Engine
	prefix string
	ttl    time.Duration
}

// hosts are those of this process.
var hosts = struct {
	mu   sync.Mutex
	byID map[hostID]*host
}{byID: make(map[hostID]*host)}

// joinHost enters s. Commands that are committed from now on are told to it.
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

// leave takes s out. The last one waits for the end of the host.
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

// beat refreshes the presence of all actors by one statement, and returns the pause until the next
// one. An actor is told when its row is gone.
func (h *host) beat(ctx context.Context) time.Duration {
	rows := make(map[string]*session)
	var all []row.DispatchPresence
	now := time.Now()
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

// listen tells the actors of each command after an offset.
func (h *host) listen(ctx context.Context, after int64) {
	topics := honker.NewStream[command](h.d.db, h.id.prefix+"q:ctl:*", nil)
	retry := engine.Retry{Log: h.id.engine.Logger, What: "dispatch: commands are not read, retrying"}
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
			// A backup was restored over the file: what is in it now is of the past.
			if head, err := h.d.head(ctx); err == nil {
				after, failed = head, nil
			}
		}
		if failed != nil && retry.After(ctx, failed) != nil {
			return
		}
	}
}

// tell hands a command to the actors that it is for.
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

// head is the offset of the last event that there is.
func (d *Dispatcher) head(ctx context.Context) (head int64, err error) {
	err = d.engine.Read(ctx, func(ctx context.Context, q engine.Querier) (err error) {
		head, err = store.Streams{}.Last(ctx, q)
		return err
	})
	return head, err
}
