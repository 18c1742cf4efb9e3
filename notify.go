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
	"github.com/honker-go/honker/internal/wake"
)

// Notification is a message sent to a channel.
type Notification struct {
	ID        int64 // increases in commit order
	Channel   string
	Payload   json.RawMessage // as sent; other bindings may send text that is not JSON
	CreatedAt time.Time
}

// Decode unmarshals the JSON payload into v.
func (n *Notification) Decode(v any) error {
	if err := json.Unmarshal(n.Payload, v); err != nil {
		return failID("decode notification", n.ID, err)
	}
	return nil
}

// Notify sends payload as JSON to all listeners on channel, in any process, and returns the message's ID. Listeners
// created later do not receive it. The row is kept until [DB.PruneNotifications] or [DB.Maintain] deletes it.
//
// Notify waits for the writer until ctx ends or BusyTimeout has passed. It returns [ErrInvalid] for a payload of type
// []byte; json.RawMessage is sent unchanged. It also returns [ErrInvalid] for channels that begin with _honker:job:,
// which honker reserves for job states. No messages are sent on these channels yet; use an [observe.Observer] to
// follow job states.
func (db *DB) Notify(ctx context.Context, channel string, payload any) (id int64, err error) {
	text, err := db.encodeMessage(channel, payload)
	if err != nil {
		return 0, fail("notify", channel, err)
	}
	err = db.engine.Write(ctx, "NotifyTx", engine.SingleOp(func(ctx context.Context, q engine.Querier, now time.Time) (err error) {
		id, err = db.engine.Stores.Notifications.Insert(ctx, q, channel, text, now)
		return err
	}))
	if err != nil {
		return 0, fail("notify", channel, err)
	}
	db.engine.Notifier.Wake(wake.Message(channel))
	return id, nil
}

// NotifyTx is like [DB.Notify] but runs within tx. Listeners receive the message when tx commits, and never if it
// rolls back.
func (db *DB) NotifyTx(ctx context.Context, tx Tx, channel string, payload any) (int64, error) {
	text, err := db.encodeMessage(channel, payload)
	if err != nil {
		return 0, fail("notify", channel, err)
	}
	on, err := db.join(ctx, tx, wake.Message(channel))
	if err != nil {
		return 0, fail("notify", channel, err)
	}
	id, err := db.engine.Stores.Notifications.Insert(ctx, on, channel, text, db.engine.Now())
	return id, fail("notify", channel, err)
}

func (db *DB) encodeMessage(channel string, payload any) (string, error) {
	if err := engine.CheckName("channel", channel); err != nil {
		return "", err
	}
	if strings.HasPrefix(channel, jobStates) {
		return "", fmt.Errorf("%w: channels that begin with %s are reserved; use an Observer for the events of jobs", ErrInvalid, jobStates)
	}
	return db.encode(payload)
}

// jobStates is the prefix of the channels that honker reserves for messages about job states. No binding sends
// such messages yet.
const jobStates = "_honker:job:"

// Listener receives the messages of its channels in commit order. It returns every message exactly once, except
// for messages that are pruned before it reads them. A Listener uses no goroutine. Next and All must not be
// called concurrently.
//
// If a backup is restored over the open file, the IDs that the Listener has already read are assigned again. The
// Listener then ends with [ErrDatabaseReplaced] so as not to miss messages.
type Listener struct {
	db       *DB
	channels []string
	keys     []wake.Key
	after    int64 // last ID that was read
	ids      logHead
	page     []row.Notification // messages read and not yet returned
	ctx      context.Context    // cancelled by Close
	cancel   context.CancelCauseFunc
}

// Listen returns a Listener for channels. The Listener receives the messages committed after Listen returns, and no
// earlier messages. ctx applies only to the call to Listen. Inside [DB.Tx], Listen and Next return [ErrInTx].
func (db *DB) Listen(ctx context.Context, channels ...string) (*Listener, error) {
	if len(channels) == 0 {
		return nil, fail("listen", "", fmt.Errorf("%w: no channel is given", ErrInvalid))
	}
	l, err := db.listen(ctx, channels)
	return l, fail("listen", fmt.Sprint(channels), err)
}

func (db *DB) listen(ctx context.Context, channels []string) (*Listener, error) {
	l := &Listener{db: db, ids: logHead{of: db.engine.Stores.Notifications.Head}}
	for _, c := range channels {
		if err := engine.CheckName("channel", c); err != nil {
			return nil, err
		}
		if !slices.Contains(l.channels, c) {
			l.channels = append(l.channels, c)
			l.keys = append(l.keys, wake.Key{Kind: wake.ChannelMessage, Name: c})
		}
	}
	// If a message is rolled back, its ID is assigned to another message.
	if err := db.engine.RefuseInTx(ctx, ""); err != nil {
		return nil, err
	}
	err := db.engine.Read(ctx, func(ctx context.Context, q engine.Querier) (err error) {
		l.after, err = db.engine.Stores.Notifications.Head(ctx, q)
		return err
	})
	if err != nil {
		return nil, err
	}
	l.ctx, l.cancel = context.WithCancelCause(context.Background())
	return l, nil
}

// Next returns the next message. It blocks until a message arrives, ctx ends, or the Listener or the DB is
// closed ([ErrClosed]).
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
		CreatedAt: row.CreatedAt,
	}, nil
}

// wait blocks until the page contains a message. It ends when the listener or the DB is closed.
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

// fill reads a page of messages if the current page is empty.
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
		page, err := l.db.engine.Stores.Notifications.Since(ctx, q, l.channels, l.after, listenPage)
		if n := len(page); n > 0 {
			l.page, l.after = page, page[n-1].ID
			l.ids.passed(l.after)
		}
		return err
	})
}

// All returns an iterator over the messages, which ends silently when ctx ends. Breaking out of the loop is
// safe: a later call continues with the next message. An error is yielded once and ends the loop.
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

// Close detaches the listener and ends any waiting call to Next. It may be called from any goroutine and more than
// once.
func (l *Listener) Close() error {
	l.cancel(ErrClosed)
	return nil
}

// PruneNotifications deletes messages older than olderThan, and all but the newest keep messages across all
// channels. A message is deleted if either bound applies. If olderThan is 0 there is no age bound; if keep is
// negative there is no count bound. PruneNotifications returns the number of deleted messages. A Listener that
// has not read them continues with the next message.
//
// It blocks until all are deleted. It works in transactions of a few milliseconds, with pauses in which other
// writers can proceed. On an error, or if ctx ends, it returns the number of messages deleted so far together
// with the error.
func (db *DB) PruneNotifications(ctx context.Context, olderThan time.Duration, keep int) (pruned int, err error) {
	if err := engine.NotNegative("age", olderThan); err != nil {
		return 0, fail("prune notifications", "", err)
	}
	if olderThan == 0 && keep < 0 {
		return 0, nil
	}
	// Apply the count bound first, because old messages count toward the newest keep.
	if keep >= 0 {
		pruned, err = db.sweepPart(ctx, db.engine.Stores.Sweeps.Surplus(keep), row.Part{}, 0)
	}
	if err != nil || olderThan == 0 {
		return pruned, fail("prune notifications", "", err)
	}
	old, err := db.sweepPart(ctx, db.engine.Stores.Sweeps.Messages, row.Part{}, olderThan)
	return pruned + old, fail("prune notifications", "", err)
}
