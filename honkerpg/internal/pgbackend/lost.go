package pgbackend

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5/stdlib"

	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/internal/engine"
)

// gone marks an error of a lost connection that has left no effect. The same transaction may succeed on another
// connection.
type gone struct{ error }

func (g gone) Unwrap() error { return g.error }

func isGone(err error) bool {
	var g gone
	return errors.As(err, &g)
}

// longestPause bounds the pause before another try.
const longestPause = 50 * time.Millisecond

// retry calls f until it reports that another try is of no use, ctx ends, or the busy timeout has passed.
func (b *Backend) retry(ctx context.Context, f func() (again bool, err error)) error {
	end := time.Now().Add(b.opts.BusyTimeout)
	for try := 0; ; try++ {
		again, err := f()
		if isGone(err) || errors.Is(err, engine.ErrUncertain) {
			b.lineage.losses.Add(1)
		}
		if !again || ctx.Err() != nil || time.Now().After(end) {
			return err
		}
		pause := time.NewTimer(rand.N(min(time.Millisecond<<min(try, 10), longestPause)))
		select {
		case <-ctx.Done():
			pause.Stop()
			return err
		case <-pause.C:
		}
	}
}

// connect returns a connection of a pool.
func (b *Backend) connect(ctx context.Context, pool *sql.DB) (*sql.Conn, error) {
	conn, err := pool.Conn(ctx)
	if pgsql.Away(err) {
		return nil, gone{err}
	}
	if err != nil {
		return nil, err
	}
	if err := b.follow(ctx, conn); err != nil {
		return nil, errors.Join(undone(conn, err), conn.Close())
	}
	return conn, nil
}

// closed reports whether the connection was lost.
func closed(conn *sql.Conn) (yes bool) {
	err := conn.Raw(func(c any) error {
		yes = c.(*stdlib.Conn).Conn().IsClosed()
		return nil
	})
	return yes || err != nil
}

// undone marks an error of a transaction that was not to be committed yet if the connection was lost. It ends a
// connection to a server that accepts no writes, because another server may accept them. No *sql.Tx may be open on the
// connection.
func undone(conn *sql.Conn, err error) error {
	switch {
	case err == nil:
		return nil
	case pgsql.ReadOnly(err):
		_ = conn.Raw(func(any) error { return driver.ErrBadConn })
	case closed(conn):
		return gone{err}
	}
	return err
}

// lost is undone for an op whose statements commit by themselves. If the connection was lost before an answer came, or
// after a statement of the op was committed, the error is ErrUncertain. Other errors of an op, such as an invalid
// argument, are certain.
func (s *session) lost(conn *sql.Conn, err error) error {
	switch {
	case err == nil || !closed(conn):
		return undone(conn, err)
	case s.ran > 1:
		return fmt.Errorf("%w: %w", engine.ErrUncertain, err)
	}
	return committed(conn, err)
}

// committed is undone for a commit, whose errors are uncertain unless the server has answered.
func committed(conn *sql.Conn, err error) error {
	if err = uncertain(err); errors.Is(err, engine.ErrUncertain) {
		return err
	}
	return undone(conn, err)
}

// uncertain adds ErrUncertain to an error that does not say whether a commit took effect.
func uncertain(err error) error {
	if err == nil || pgsql.Decided(err) {
		return err
	}
	return fmt.Errorf("%w: %w", engine.ErrUncertain, err)
}
