package honker

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/honker-go/honker/internal/store"
)

// Notification is a message that was sent to a channel.
type Notification struct {
	ID        int64 // rises in the order of commits
	Channel   string
	Payload   json.RawMessage // as sent; other bindings may send text that is no JSON
	CreatedAt time.Time
}

// Decode reads the payload into v, as json.Unmarshal does.
func (n *Notification) Decode(v any) error {
	if err := json.Unmarshal(n.Payload, v); err != nil {
		return failID("decode notification", n.ID, err)
	}
	return nil
}

// Notify sends payload, as JSON, to everybody who listens to channel now, in any
// process, and returns the message's id. Nobody stores it for those who come later;
// the row stays until [DB.PruneNotifications].
//
// It waits for its turn to write until ctx ends or BusyTimeout has passed. []byte is
// [ErrInvalid]; json.RawMessage passes through.
func (db *DB) Notify(ctx context.Context, channel string, payload any) (int64, error) {
	text, err := db.message(channel, payload)
	if err != nil {
		return 0, fail("notify", channel, err)
	}
	var id int64
	err = db.do(ctx, "NotifyTx", writeOne(func(ctx context.Context, q store.Querier, now time.Time) (err error) {
		id, err = store.Notifications{}.Insert(ctx, q, channel, text, now.Unix())
		return err
	}))
	if err != nil {
		return 0, fail("notify", channel, err)
	}
	db.hub.hint(channelMessage, channel)
	return id, nil
}

// NotifyTx is like [DB.Notify], within tx: listeners hear it when tx commits, and
// never when it rolls back.
func (db *DB) NotifyTx(ctx context.Context, tx Tx, channel string, payload any) (int64, error) {
	text, err := db.message(channel, payload)
	if err == nil {
		tx, err = db.in(ctx, tx)
	}
	if err != nil {
		return 0, fail("notify", channel, err)
	}
	id, err := store.Notifications{}.Insert(ctx, tx, channel, text, time.Now().Unix())
	return id, fail("notify", channel, err)
}

func (db *DB) message(channel string, payload any) (string, error) {
	if err := checkName("channel", channel); err != nil {
		return "", err
	}
	return encode(payload, db.opts.MaxPayload)
}

// Listener receives the messages of its channels, in the order of their commits, none
// twice and none left out, unless they are pruned before they were read. It needs no
// goroutine. One goroutine at a time may call Next or range over All.
type Listener struct {
	db       *DB
	channels []string
	topics   []topic
	after    int64                // the last id that was read
	page     []store.Notification // read, and not yet handed out
	ctx      context.Context      // ends with Close
	cancel   context.CancelCauseFunc
}

// Listen attaches to channels. It is attached when it returns: messages committed
// later are seen, history is not. ctx bounds the attaching only.
func (db *DB) Listen(ctx context.Context, channels ...string) (*Listener, error) {
	name := fmt.Sprint(channels)
	if len(channels) == 0 {
		return nil, fail("listen", "", fmt.Errorf("%w: no channel", ErrInvalid))
	}
	l := &Listener{db: db}
	l.ctx, l.cancel = context.WithCancelCause(db.ctx)
	for _, c := range channels {
		if err := checkName("channel", c); err != nil {
			return nil, fail("listen", name, err)
		}
		if !slices.Contains(l.channels, c) {
			l.channels = append(l.channels, c)
			l.topics = append(l.topics, topic{channelMessage, c})
		}
	}
	if db.isClosed() {
		return nil, fail("listen", name, ErrClosed)
	}
	var err error
	if l.after, err = (store.Notifications{}).Last(ctx, db.own); err != nil {
		return nil, fail("listen", name, db.because(err))
	}
	return l, nil
}

// Next returns the next message. It waits until there is one, ctx ends, or the
// listener or the DB is closed ([ErrClosed]).
func (l *Listener) Next(ctx context.Context) (*Notification, error) {
	n, err := l.next(ctx)
	return n, fail("listen", fmt.Sprint(l.channels), err)
}

func (l *Listener) next(ctx context.Context) (*Notification, error) {
	if err := l.fill(ctx); err != nil {
		return nil, err
	}
	if len(l.page) == 0 {
		if err := l.sleep(ctx); err != nil {
			return nil, err
		}
	}
	row := l.page[0]
	l.page = l.page[1:]
	return &Notification{
		ID:        row.ID,
		Channel:   row.Channel,
		Payload:   json.RawMessage(row.Payload),
		CreatedAt: instant(row.CreatedAt),
	}, nil
}

// sleep returns when the page has a message.
func (l *Listener) sleep(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(l.ctx, func() { cancel(ErrClosed) })()
	s := l.db.hub.subscribe(l.topics...)
	defer s.leave()
	for {
		if err := l.fill(ctx); err != nil || len(l.page) > 0 {
			return err
		}
		if err := s.wait(ctx); err != nil {
			return err
		}
	}
}

const listenPage = 256

// fill reads a page of messages, if none is at hand.
func (l *Listener) fill(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return ended(ctx)
	}
	if l.ctx.Err() != nil {
		return ErrClosed
	}
	if len(l.page) > 0 {
		return nil
	}
	page, err := store.Notifications{}.Since(context.WithoutCancel(ctx), l.db.own, l.channels, l.after, listenPage)
	if n := len(page); n > 0 {
		l.page, l.after = page, page[n-1].ID
	}
	return l.db.because(err)
}

// All yields messages until ctx ends. Breaking off is safe: the next message comes
// from the next call. An error is yielded once and is the last.
func (l *Listener) All(ctx context.Context) iter.Seq2[*Notification, error] {
	return func(yield func(*Notification, error) bool) {
		for {
			n, err := l.Next(ctx)
			if err != nil && ctx.Err() != nil {
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
func (db *DB) PruneNotifications(ctx context.Context, olderThan time.Duration, keep int) (int, error) {
	if err := notNegative("age", olderThan); err != nil {
		return 0, fail("prune notifications", "", err)
	}
	if olderThan == 0 && keep < 0 {
		return 0, nil
	}
	pruned := 0
	err := db.do(ctx, "", writeOne(func(ctx context.Context, q store.Querier, now time.Time) (err error) {
		before := int64(0)
		if olderThan > 0 {
			before = now.Unix() - seconds(olderThan)
		}
		pruned, err = store.Notifications{}.Prune(ctx, q, before, keep)
		return err
	}))
	return pruned, fail("prune notifications", "", err)
}
