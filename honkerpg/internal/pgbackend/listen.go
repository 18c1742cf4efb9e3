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

// errDeaf reports a connection that gets no notices.
var errDeaf = errors.New("notifications do not arrive, as behind a pooler in transaction mode: set Options.ListenDSN to a connection " +
	"string that leads to the server itself, or set Options.NoListen")

// listen keeps a connection that listens, until ctx ends or the connection turns out to be deaf.
func (w *watcher) listen(ctx context.Context) {
	log := w.backend.opts.Logger.With("db", w.backend.name)
	lost := false
	for pause := firstReconnect; ; pause = min(2*pause, slowestReconnect) {
		err := w.listenOnce(ctx, func() {
			pause = firstReconnect
			if lost {
				log.InfoContext(ctx, "honker: the LISTEN connection is back")
			}
			lost = false
			w.setLinked(true)
		})
		w.setLinked(false)
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, errDeaf) {
			log.WarnContext(ctx, "honker: other processes' commits are polled for", "err", err)
			return
		}
		if !lost {
			log.WarnContext(ctx, "honker: the LISTEN connection is lost; other processes' commits are polled for until it is back", "err", err)
		}
		lost = true
		select {
		case <-time.After(pause/2 + rand.N(pause/2)):
		case <-ctx.Done():
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
	conn, err := pgx.ConnectConfig(ctx, w.backend.opts.Listen)
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
		n, err := conn.WaitForNotification(ctx)
		if err != nil {
			return err
		}
		if signals, ok := w.parse(n.Payload); ok {
			w.noticed(signals)
		}
	}
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

// parse returns the signals of a notice from another process, or from a transaction whose commit is not observed.
func (w *watcher) parse(payload string) (wake.Signals, bool) {
	mask, sender, _ := strings.Cut(payload, " ")
	if sender == w.process {
		return 0, false
	}
	n, err := strconv.ParseUint(mask, 16, 64)
	return wake.Signals(n), err == nil
}
