package testkit

import (
	"bytes"
	"context"
	"database/sql"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/observe"
)

// Log collects log output. It is safe for concurrent use.
type Log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer, for slog handlers.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// Times returns the number of occurrences of what in the log.
func (l *Log) Times(what string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), what)
}

// Bubble runs f in a testing/synctest bubble, in which time advances only when all goroutines are blocked. The bubble
// starts at a whole second. Its DB gets no file notifications, because those come from outside the bubble.
func Bubble(t *testing.T, f func(t *testing.T, db *honker.DB, s *Recorder)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := new(Recorder)
		f(t, honkertest.Open(t, &honker.Options{
			NoFileNotices: true,
			PollInterval:  time.Hour,
			Logger:        slog.New(slog.DiscardHandler),
			Observer:      &observe.Observer{Settled: func(e observe.Settled) { Record(s, &s.Settled, e) }},
		}), s)
	})
}

// Handler is a handler of jobs.
type Handler[T any] = func(context.Context, *honker.Job[T]) error

// LoggedBubble is like Bubble, but also passes f a log of messages at level Info and above.
func LoggedBubble(t *testing.T, f func(t *testing.T, db *honker.DB, s *Recorder, log *Log)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s, log := new(Recorder), new(Log)
		f(t, honkertest.Open(t, &honker.Options{
			NoFileNotices: true,
			PollInterval:  time.Hour,
			Logger:        slog.New(slog.NewTextHandler(log, nil)),
			Observer: &observe.Observer{
				Started: func(e observe.Started) { Record(s, &s.Started, e) },
				Settled: func(e observe.Settled) { Record(s, &s.Settled, e) },
			},
		}), s, log)
	})
}

// Succeed is a handler that returns nil.
func Succeed[T any](context.Context, *honker.Job[T]) error { return nil }

// SucceedTx is a handler for WorkTx that returns nil.
func SucceedTx[T any](context.Context, *sql.Tx, *honker.Job[T]) error { return nil }

// AddWorker adds a worker of queue on another host, whose process can't be checked.
func AddWorker(t testing.TB, db *honker.DB, queue, id string, slots int) {
	t.Helper()
	Exec(t, db, addWorker, id, queue, slots, time.Now().UnixMilli())
}

// Work runs Queue.Work in the background. stop cancels its ctx and returns its error.
func Work[T any](t testing.TB, q *honker.Queue[T], fn Handler[T], opts *honker.WorkOptions) (stop func() error) {
	t.Helper()
	return Background(t, func(ctx context.Context) error { return q.Work(ctx, fn, opts) })
}
