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
	maxViewers   = 100                    // streams of one file
	tickEvery    = 250 * time.Millisecond // commits in between share a tick
	heartbeat    = 15 * time.Second
	streamWrite  = 5 * time.Second // a browser that takes longer is gone
	streamOpener = 2048            // bytes that get through proxies which wait for some
)

// viewers are the open pages of a file. One loop follows the file for all of them, while there are any.
type viewers struct {
	mu   sync.Mutex
	open map[chan struct{}]bool
	stop context.CancelFunc // of the loop; nil: none runs
}

var errTooMany = errors.New("too many pages are open")

// join adds a page. Its channel has a tick after each commit, and is closed when there are no more.
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

// leave takes a page away; after the last one the file is not read any more.
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

// follow is the loop. It ends with ctx, and when the DB is closed or its file was replaced: then all
// streams end.
func (v *viewers) follow(ctx context.Context, h *Handler, db *honker.DB) {
	for _, err := range db.Updates(ctx) {
		if err != nil {
			h.opts.Logger.Info("honker ui: pages are not live any more", "error", err)
			v.endAll(ctx)
			return
		}
		v.tick(ctx)
		select {
		case <-time.After(tickEvery):
		case <-ctx.Done():
		}
	}
}

func (v *viewers) tick(ctx context.Context) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	for ticks := range v.open {
		select {
		case ticks <- struct{}{}:
		default: // it has one that it has not seen yet
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

// eventsPage is the stream of a page: a number after each commit, and nothing else. The page then asks for
// itself again, so what it shows is authorized like any page.
func eventsPage(c *call) serve {
	return func() error {
		s := &stream{w: c.w, control: http.NewResponseController(c.w)}
		h := c.w.Header()
		h.Set("Content-Type", "text/event-stream; charset=utf-8")
		h.Set("Cache-Control", "no-store, no-transform")
		h.Set("X-Accel-Buffering", "no")
		ticks, err := c.file.viewers.join(c.h, c.db)
		if err != nil {
			return &problem{http.StatusServiceUnavailable, "Not live", err.Error()}
		}
		defer c.file.viewers.leave(ticks)
		defer s.end()
		// A wrapper that cannot flush would keep everything back: the page is told so, and asks now and then instead.
		if err := s.control.Flush(); errors.Is(err, http.ErrNotSupported) {
			return &problem{http.StatusNotImplemented, "Not live", "The answer passes through a http.ResponseWriter without Flush and Unwrap."}
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

// send writes at once, within a time of its own: the WriteTimeout of the server would end the stream.
func (s *stream) send(text string) error {
	if err := s.control.SetWriteDeadline(time.Now().Add(streamWrite)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	if _, err := s.w.Write([]byte(text)); err != nil {
		return err
	}
	return s.control.Flush()
}

// end leaves the connection without the deadline of the last write.
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
