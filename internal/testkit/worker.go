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
)

// Log collects what was logged.
type Log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write makes a Log the writer of a slog.Handler.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// Times counts how often what was logged.
func (l *Log) Times(what string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), what)
}

// Bubble runs f under a clock that stands still while any goroutine works, and jumps to the
// next timer when all wait. It begins at a whole second. Its DB must hear of commits
// from within only: a notice of the system comes from outside.
func Bubble(t *testing.T, f func(t *testing.T, db *honker.DB, s *Recorder)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := new(Recorder)
		f(t, honkertest.Open(t, &honker.Options{
			NoFileNotices: true,
			PollInterval:  time.Hour,
			Logger:        slog.New(slog.DiscardHandler),
			Observer:      &honker.Observer{Settled: func(e honker.Settled) { Record(s, &s.Settled, e) }},
		}), s)
	})
}

// Handler is a handler of jobs.
type Handler[T any] = func(context.Context, *honker.Job[T]) error

// LoggedBubble is Bubble with a log of all levels from Info.
func LoggedBubble(t *testing.T, f func(t *testing.T, db *honker.DB, s *Recorder, log *Log)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s, log := new(Recorder), new(Log)
		f(t, honkertest.Open(t, &honker.Options{
			NoFileNotices: true,
			PollInterval:  time.Hour,
			Logger:        slog.New(slog.NewTextHandler(log, nil)),
			Observer: &honker.Observer{
				Started: func(e honker.Started) { Record(s, &s.Started, e) },
				Settled: func(e honker.Settled) { Record(s, &s.Settled, e) },
			},
		}), s, log)
	})
}

// Succeed is a handler that does nothing.
func Succeed[T any](context.Context, *honker.Job[T]) error { return nil }

// SucceedTx is one for WorkTx.
func SucceedTx[T any](context.Context, *sql.Tx, *honker.Job[T]) error { return nil }

// Work is a Work in the background. stop ends its ctx and returns what it returned.
func Work[T any](t testing.TB, q *honker.Queue[T], fn Handler[T], opts *honker.WorkOptions) (stop func() error) {
	t.Helper()
	return Background(t, func(ctx context.Context) error { return q.Work(ctx, fn, opts) })
}
