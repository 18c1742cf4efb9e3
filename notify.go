package honker

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/store"
	"github.com/honker-go/honker/internal/wake"
)

// notificationStore are the statements about notifications.
type notificationStore interface {
	Insert(ctx context.Context, q engine.Querier, channel, payload string, now int64) (int64, error)
	Last(ctx context.Context, q engine.Querier) (int64, error)
	Sequence(ctx context.Context, q engine.Querier) (int64, error)
	Since(ctx context.Context, q engine.Querier, channels []string, after int64, limit int) ([]row.Notification, error)
	ChannelsSince(ctx context.Context, q engine.Querier, after int64, limit int) (channels row.Added, n int, last int64, err error)
	Surplus(ctx context.Context, q engine.Querier, keep, limit int) ([]int64, error)
	Drop(ctx context.Context, q engine.Querier, ids []int64) (int, error)
}

// Notification is a message that was sent to a channel.
type Notification struct {
	ID        int64 // rises in the order of commits
	Channel   string
	Payload   json.RawMessage // as sent; other bindings may send text that is not JSON
	CreatedAt time.Time
}

// Decode reads the payload into v, as json.Unmarshal does.
func (n *Notification) Decode(v any) error {
	if err := json.Unmarshal(n.Payload, v); err != nil {
		return failID("decode notification", n.ID, err)
	}
	return nil
}

// Notify sends payload, as JSON, to all listeners of channel, in any process, and returns
// the message's id. A listener that attaches later does not see it; the row stays until
// [DB.PruneNotifications] or [DB.Maintain].
//
// It waits for the writer until ctx ends or BusyTimeout has passed. []byte is
// [ErrInvalid]; json.RawMessage passes through. A channel that begins with _honker:job: is [ErrInvalid]:
// honker reserves it for the states of jobs, of which no messages are sent. An [Observer] is told of those.
func (db *DB) Notify(ctx context.Context, channel string, payload any) (id int64, err error) {
	text, err := db.encodeMessage(channel, payload)
	if err != nil {
		return 0, fail("notify", channel, err)
	}
	err = db.engine.Write(ctx, "NotifyTx", engine.SingleOp(func(ctx context.Context, q engine.Querier, now time.Time) (err error) {
		id, err = db.notifications.Insert(ctx, q, channel, text, now.Unix())
		return err
	}))
	if err != nil {
		return 0, fail("notify", channel, err)
	}
	db.engine.Notifier.Wake(heard(channel))
	return id, nil
}

// heard is what the commit of a message brings.
func heard(channel string) wake.Change { return wake.Change{Kind: wake.ChannelMessage, Name: channel} }

// NotifyTx is like [DB.Notify], within tx: listeners receive it when tx commits, and
// never when it rolls back.
func (db *DB) NotifyTx(ctx context.Context, tx Tx, channel string, payload any) (int64, error) {
	text, err := db.encodeMessage(channel, payload)
	if err != nil {
		return 0, fail("notify", channel, err)
	}
	on, err := db.join(ctx, tx, heard(channel))
	if err != nil {
		return 0, fail("notify", channel, err)
	}
	id, err := db.notifications.Insert(ctx, on, channel, text, time.Now().Unix())
	return id, fail("notify", channel, err)
}

func (db *DB) encodeMessage(channel string, payload any) (string, error) {
	if err := engine.CheckName("channel", channel); err != nil {
		return "", err
	}
	if strings.HasPrefix(channel, jobStates) {
		return "", fmt.Errorf("%w: honker reserves channels that begin with %s; for what happens to jobs use an Observer", ErrInvalid, jobStates)
	}
	return db.encode(payload)
}

// jobStates begins the channels that honker has reserved for messages of the states of jobs, which no binding
// sends yet.
const jobStates = "_honker:job:"

// Listener receives the messages of its channels, in the order of their commits, none
// twice and none left out, unless they are pruned before they were read. It needs no
// goroutine. One goroutine at a time may call Next or range over All.
//
// When a backup is restored over the open file, ids that it has passed are given out again: it
// ends with [ErrDatabaseReplaced] rather than miss messages.
type Listener struct {
	db       *DB
	channels []string
	keys     []wake.Key
	after    int64 // the last id that was read
	ids      sequence
	page     []row.Notification // read, and not yet returned
	ctx      context.Context    // ends with Close
	cancel   context.CancelCauseFunc
}

// Listen attaches to channels. It is attached when it returns: messages committed
// later are seen, history is not. ctx bounds the attaching only. Inside of [DB.Tx] it is
// [ErrInTx], as is Next.
func (db *DB) Listen(ctx context.Context, channels ...string) (*Listener, error) {
	if len(channels) == 0 {
		return nil, fail("listen", "", fmt.Errorf("%w: no channel", ErrInvalid))
	}
	l, err := db.listen(ctx, channels)
	return l, fail("listen", fmt.Sprint(channels), err)
}

func (db *DB) listen(ctx context.Context, channels []string) (*Listener, error) {
	l := &Listener{db: db, ids: sequence{of: db.notifications.Sequence}}
	for _, c := range channels {
		if err := engine.CheckName("channel", c); err != nil {
			return nil, err
		}
		if !slices.Contains(l.channels, c) {
			l.channels = append(l.channels, c)
			l.keys = append(l.keys, wake.Key{Kind: wake.ChannelMessage, Name: c})
		}
	}
	// The id of a message that is rolled back is given to another one.
	if err := db.engine.RefuseInTx(ctx, ""); err != nil {
		return nil, err
	}
	err := db.engine.Read(ctx, func(ctx context.Context, q engine.Querier) (err error) {
		l.after, err = db.notifications.Last(ctx, q)
		return err
	})
	if err != nil {
		return nil, err
	}
	l.ctx, l.cancel = context.WithCancelCause(context.Background())
	return l, nil
}

// Next returns the next message. It waits until there is one, ctx ends, or the
// listener or the DB is closed ([ErrClosed]).
func (l *Listener) Next(ctx context.Context) (*Notification, error) {
	n, err := l.next(ctx)
	return n, fail("listen", fmt.Sprint(l.channels), err)
}

func (l *Listener) next(ctx context.Context) (*Notification, error) {
	if err := l.db.engine.RefuseInTx(ctx, ""); err != nil {
		return nil, err
	}
	if err := l.fill(ctx); err != nil {
		return nil, err
	}
	if len(l.page) == 0 {
		if err := l.wait(ctx); err != nil {
			return nil, err
		}
	}
	row := l.page[0]
	l.page = l.page[1:]
	return &Notification{
		ID:        row.ID,
		Channel:   row.Channel,
		Payload:   json.RawMessage(row.Payload),
		CreatedAt: engine.Instant(row.CreatedAt),
	}, nil
}

// wait returns when the page has a message. It ends with the listener and with the DB.
func (l *Listener) wait(ctx context.Context) error {
	ctx, leave := l.db.engine.UntilClose(ctx)
	defer leave()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(l.ctx, func() { cancel(ErrClosed) })()
	slept := false
	return l.db.engine.Notifier.Until(ctx, func() (time.Duration, error) {
		if err := l.fill(ctx); err != nil || len(l.page) > 0 {
			return wake.Done, err
		}
		err := l.ids.check(ctx, l.db, slept)
		slept = true
		return wake.Forever, err
	}, l.keys...)
}

const listenPage = 256

// fill reads a page of messages, if none is at hand.
func (l *Listener) fill(ctx context.Context) error {
	if ctx.Err() != nil {
		return engine.Cause(ctx)
	}
	if l.ctx.Err() != nil || l.db.engine.Closing() {
		return ErrClosed
	}
	if len(l.page) > 0 {
		return nil
	}
	return l.db.engine.Read(ctx, func(ctx context.Context, q engine.Querier) error {
		page, err := l.db.notifications.Since(ctx, q, l.channels, l.after, listenPage)
		if n := len(page); n > 0 {
			l.page, l.after = page, page[n-1].ID
			l.ids.passed(l.after)
		}
		return err
	})
}

// All yields messages and ends silently when ctx ends. Breaking off is safe: the next message
// comes from the next call. An error is yielded once and is the last.
func (l *Listener) All(ctx context.Context) iter.Seq2[*Notification, error] {
	return func(yield func(*Notification, error) bool) {
		for {
			n, err := l.Next(ctx)
			if err != nil && engine.Ended(ctx) {
				return
			}
			if !yield(n, err) || err != nil {
				return
			}
		}
	}
}

// Close detaches the listener and ends a Next that waits. It may be called from any
// goroutine, and more than once.
func (l *Listener) Close() error {
	l.cancel(ErrClosed)
	return nil
}

// PruneNotifications deletes messages older than olderThan, and all but the keep
// newest ones of all channels together: what falls under either. olderThan 0 is no
// age bound; keep < 0 is no count bound. It returns how many went. A listener that
// has not read them goes on with the next.
//
// It blocks until that is done, in transactions of some milliseconds with pauses between them,
// in which other writers get the file. An error, also the end of ctx, comes with what was
// deleted until then.
func (db *DB) PruneNotifications(ctx context.Context, olderThan time.Duration, keep int) (pruned int, err error) {
	if err := engine.NotNegative("age", olderThan); err != nil {
		return 0, fail("prune notifications", "", err)
	}
	if olderThan == 0 && keep < 0 {
		return 0, nil
	}
	// By count first: those that are old count among the newest.
	if keep >= 0 {
		pruned, err = db.dropSurplus(ctx, keep)
	}
	if err != nil || olderThan == 0 {
		return pruned, fail("prune notifications", "", err)
	}
	old, err := db.sweepBefore(ctx, store.SweepMessages, olderThan)
	return pruned + old, fail("prune notifications", "", err)
}

func (db *DB) dropSurplus(ctx context.Context, keep int) (int, error) {
	find := func(ctx context.Context, q engine.Querier, _ time.Time, limit int) ([]int64, error) {
		return db.notifications.Surplus(ctx, q, keep, limit)
	}
	return db.engine.InChunks(ctx, find, func(ctx context.Context, q engine.Querier, ids []int64, _ time.Time) (int, error) {
		return db.notifications.Drop(ctx, q, ids)
	}, nil)
}
