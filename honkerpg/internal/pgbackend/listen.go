package pgbackend

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/honker-go/honker/honkerpg/internal/pgstore"
	"github.com/honker-go/honker/internal/wake"
)

// Pauses between attempts to connect.
const (
	firstReconnect   = 50 * time.Millisecond
	slowestReconnect = 5 * time.Second
)

// echoTime is the time in which a notice of the process must come back to it. A process may stand still for as long, so
// two must be missing before the connection counts as deaf.
const echoTime = 2 * time.Second

// deafRetry is the pause after which a deaf connection is tried again.
const deafRetry = 5 * time.Minute

// A connection that was cut off without a word is noticed by a ping.
const (
	pingEvery = 30 * time.Second
	pingLimit = 10 * time.Second
)

// ListenerState is the state of the connection that gets notices.
type ListenerState int

// The states.
const (
	Unused    ListenerState = iota // nothing has waited yet, or the process polls by choice
	Listening                      // notices come
	Lost                           // the connection is made again
	Deaf                           // there is a connection, but notices do not come
)

// Listener describes the connection that gets notices.
type Listener struct {
	State ListenerState
	Since time.Time // by the process's clock
	Err   error     // why notices do not come
}

// Listener returns the state of the connection that gets notices.
func (b *Backend) Listener() Listener {
	w := b.watcher.Load()
	if w == nil {
		return Listener{}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.listener
}

// lostLong is the time without a connection for notices that is a problem. A restarted server is back before.
const lostLong = time.Minute

// DeafSince implements engine.Notified.
func (b *Backend) DeafSince() (since time.Time, why error) {
	l := b.Listener()
	if l.State == Deaf || l.State == Lost && time.Since(l.Since) > lostLong {
		return l.Since, l.Err
	}
	return time.Time{}, nil
}

// note sets the state of the connection. It reports whether it has changed.
func (w *watcher) note(s ListenerState, err error) (changed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if changed = w.listener.State != s; changed {
		w.listener.Since = time.Now()
	}
	w.listener.State, w.listener.Err = s, err
	return changed
}

// errDeaf reports a connection that gets no notices.
var errDeaf = errors.New("notifications do not arrive, as behind a pooler in transaction mode: set Options.ListenDSN to a connection " +
	"string that leads to the server itself, or set Options.NoListen")

// listen keeps a connection that listens until ctx ends.
func (w *watcher) listen(ctx context.Context) {
	log := w.backend.opts.Logger.With("db", w.backend.name)
	for pause := firstReconnect; ; pause = min(2*pause, slowestReconnect) {
		err := w.listenOnce(ctx, func() {
			pause = firstReconnect
			before := w.backend.Listener().State
			if w.note(Listening, nil) && before != Unused {
				log.InfoContext(ctx, "honker: the LISTEN connection is back")
			}
			w.setLinked(true)
		})
		w.setLinked(false)
		if ctx.Err() != nil {
			return
		}
		wait := pause/2 + rand.N(pause/2)
		if errors.Is(err, errDeaf) {
			wait = deafRetry
			if w.note(Deaf, err) {
				log.WarnContext(ctx, "honker: other processes' commits are polled for", "err", err)
			}
		} else if w.note(Lost, err) {
			log.WarnContext(ctx, "honker: the LISTEN connection is lost; other processes' commits are polled for until it is back", "err", err)
		}
		if !rest(ctx, wait) {
			return
		}
	}
}

// listenOnce connects, calls ready once a notice has arrived, and passes notices on until the connection fails.
func (w *watcher) listenOnce(ctx context.Context, ready func()) error {
	channel, err := pgstore.Channel(ctx, w.backend.pool, w.backend.opts.Schema)
	if err != nil {
		return err
	}
	config := w.backend.opts.Listen.Copy()
	if before := w.backend.opts.BeforeListen; before != nil {
		if err := before(ctx, config); err != nil {
			return err
		}
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return err
	}
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(end)
	}()
	if _, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{channel}.Sanitize()); err != nil {
		return err
	}
	if err := w.echo(ctx, conn, channel); err != nil {
		return err
	}
	ready()
	for {
		n, err := next(ctx, conn)
		if err != nil {
			return err
		}
		if n == nil {
			continue
		}
		if signals, unseen, ok := w.parse(n.Payload); ok {
			w.noticed(signals, unseen)
		}
	}
}

// next returns the next notice, or nil after a while without one.
func next(ctx context.Context, conn *pgx.Conn) (*pgconn.Notification, error) {
	until, cancel := context.WithTimeout(ctx, pingEvery)
	defer cancel()
	n, err := conn.WaitForNotification(until)
	if err == nil || ctx.Err() != nil || until.Err() == nil {
		return n, err
	}
	limit, cancel := context.WithTimeout(ctx, pingLimit)
	defer cancel()
	return nil, conn.Ping(limit)
}

// echo waits for a notice that the process sends to itself.
func (w *watcher) echo(ctx context.Context, conn *pgx.Conn, channel string) error {
	for range 2 {
		if err := pgstore.Echo(ctx, w.backend.pool, channel, "echo "+w.process); err != nil {
			return err
		}
		until, cancel := context.WithTimeout(ctx, echoTime)
		for {
			n, err := conn.WaitForNotification(until)
			if err == nil && n.Payload == "echo "+w.process {
				cancel()
				return nil
			}
			if err == nil {
				continue
			}
			if ctx.Err() != nil || until.Err() == nil {
				cancel()
				return err
			}
			break
		}
		cancel()
	}
	return fmt.Errorf("%w (%s:%d)", errDeaf, conn.Config().Host, conn.Config().Port)
}

// parse returns the signals of a notice from another process, or from a transaction whose commit is unseen.
func (w *watcher) parse(payload string) (signals wake.Signals, unseen, ok bool) {
	mask, sender, _ := strings.Cut(payload, " ")
	if sender == w.process {
		return 0, false, false
	}
	n, err := strconv.ParseUint(mask, 16, 64)
	return wake.Signals(n), sender == "", err == nil
}
