package ui

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/honker-go/honker"
)

const (
	maxViewers   = 100                    // maximum number of streams per file
	tickEvery    = 250 * time.Millisecond // minimum interval between ticks
	restShare    = 50                     // and its minimum as a multiple of the time in which the pages were served after a tick
	longestRest  = 10 * time.Second       // but not more than this
	heartbeat    = 15 * time.Second
	streamWrite  = 5 * time.Second // write timeout of a stream
	streamOpener = 2048            // bytes of padding, because some proxies buffer the start of a response
)

// viewers tracks the pages that show a file. While pages are open, a single goroutine follows the file on
// behalf of all of them.
type viewers struct {
	mu    sync.Mutex
	open  map[chan struct{}]bool
	stop  context.CancelFunc // stops the goroutine; nil if it is not running
	spent time.Duration      // time in which pages were served since the last tick
}

var errTooMany = errors.New("too many pages are open")

// join adds a page. If it is the first page, join starts the goroutine. The returned channel receives a tick
// after each commit and is closed when the stream must end.
func (v *viewers) join(h *Handler, db *honker.DB) (chan struct{}, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.open) >= maxViewers {
		return nil, errTooMany
	}
	if v.open == nil {
		v.open = map[chan struct{}]bool{}
	}
	if v.stop == nil {
		ctx, stop := context.WithCancel(h.ended)
		if !h.spawn(func() { v.follow(ctx, h, db) }) {
			stop()
			return nil, http.ErrServerClosed
		}
		v.stop = stop
	}
	ticks := make(chan struct{}, 1)
	v.open[ticks] = true
	return ticks, nil
}

// leave removes a page. If it was the last page, leave stops the goroutine.
func (v *viewers) leave(ticks chan struct{}) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.open, ticks)
	if len(v.open) == 0 {
		v.halt()
	}
}

func (v *viewers) halt() {
	if v.stop != nil {
		v.stop()
		v.stop = nil
	}
}

// follow sends ticks to all pages until ctx is done. If the DB is closed or its file is replaced, follow ends
// all streams and returns.
func (v *viewers) follow(ctx context.Context, h *Handler, db *honker.DB) {
	for _, err := range db.Updates(ctx) {
		if err != nil {
			h.opts.Logger.Info("honker ui: live updates of pages stopped", "error", err)
			v.endAll(ctx)
			return
		}
		v.tick(ctx)
		v.rest(ctx)
	}
}

// rest waits until the next tick may be sent. Open pages reload after each tick, so the ticks of pages that are expensive or
// many are rare.
func (v *viewers) rest(ctx context.Context) {
	began := time.Now()
	for wait := tickEvery; wait > 0 && ctx.Err() == nil; wait = v.restTime() - time.Since(began) {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
	}
}

func (v *viewers) restTime() time.Duration {
	v.mu.Lock()
	defer v.mu.Unlock()
	return min(restShare*v.spent, longestRest)
}

// served adds the time in which a page was served.
func (v *viewers) served(took time.Duration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.spent += took
}

func (v *viewers) tick(ctx context.Context) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	v.spent = 0
	for ticks := range v.open {
		select {
		case ticks <- struct{}{}:
		default: // a tick is already pending
		}
	}
}

func (v *viewers) endAll(ctx context.Context) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	for ticks := range v.open {
		close(ticks)
	}
	v.open = nil
	v.halt()
}

// eventsPage serves the event stream for an open page. The only data sent is a number after each commit. The
// page then reloads itself, and the reload is authorized like any other request.
func eventsPage(c *call) serve {
	return func() error {
		s := &stream{w: c.w, control: http.NewResponseController(c.w)}
		h := c.w.Header()
		h.Set("Content-Type", "text/event-stream; charset=utf-8")
		h.Set("Cache-Control", "no-store, no-transform")
		h.Set("X-Accel-Buffering", "no")
		ticks, err := c.file.viewers.join(c.h, c.db)
		if err != nil {
			return &problem{http.StatusServiceUnavailable, "No live updates", err.Error()}
		}
		defer c.file.viewers.leave(ticks)
		defer s.end()
		// A ResponseWriter without Flush would buffer the stream. If it gets this error, the page polls instead.
		if err := s.control.Flush(); errors.Is(err, http.ErrNotSupported) {
			return &problem{http.StatusNotImplemented, "No live updates", "The http.ResponseWriter has neither Flush nor Unwrap."}
		}
		if err := s.send(": " + strings.Repeat(" ", streamOpener) + "\n\nevent: hello\ndata: 0\n\n"); err != nil {
			return nil
		}
		return s.run(c, ticks)
	}
}

// stream writes server-sent events.
type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

// send writes and flushes text. It sets a new write deadline each time, because otherwise the server's WriteTimeout
// would end the stream.
func (s *stream) send(text string) error {
	if err := s.control.SetWriteDeadline(time.Now().Add(streamWrite)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	if _, err := s.w.Write([]byte(text)); err != nil {
		return err
	}
	return s.control.Flush()
}

// end clears the write deadline so that it doesn't affect later requests on the connection.
func (s *stream) end() { _ = s.control.SetWriteDeadline(time.Time{}) }

func (s *stream) run(c *call, ticks <-chan struct{}) error {
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	for n := 1; ; {
		text := ":\n\n"
		select {
		case _, more := <-ticks:
			if !more {
				return nil
			}
			text = fmt.Sprintf("event: tick\ndata: %d\n\n", n)
			n++
		case <-beat.C:
		case <-c.ctx.Done():
			return nil
		case <-c.h.ended.Done():
			return nil
		}
		if err := s.send(text); err != nil {
			return nil
		}
	}
}
