// Package inbox receives messages of other nodes, each with effect once: the receiving half of a
// bridge between two files, of which package relay is the sending half.
//
// A sender delivers a message at least once. An [Inbox] verifies the request, records the
// message's source and id, and runs a handler, all in one transaction of the receiver's file. So
// a message that is delivered again is answered like the first time and changes nothing. The
// handler adds a job, publishes an event, or writes the application's own tables.
//
//	in, err := inbox.New(db, &inbox.Options{Source: "shop", Secrets: []string{secret}})
//	...
//	orders := honker.NewQueue[Order](db, "orders", nil)
//	http.Handle("POST /orders", in.Handler(inbox.Enqueue(orders)))
//
// Requests follow the Standard Webhooks specification (see standardwebhooks.com), so the sender
// can be anything that implements it, such as HTTP of package relay with a Secret.
//
// The table of package inbox is this library's own, _honkerx_inbox_received in the file, and is
// created by the first message. [honker.DB.Maintain] deletes what has outlived its retention.
package inbox

import (
	_ "embed"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/store"
	"github.com/honker-go/honker/internal/webhook"
)

//go:embed schema.sql
var schema string

// Errors of a request, see [Inbox.Verify]. Nothing was changed.
var (
	// ErrSignature reports that no signature of the request is of one of the secrets.
	ErrSignature = webhook.ErrSignature
	// ErrTimestamp reports that the attempt is older than Options.Tolerance, or as far in the
	// future: the request is a replay, or a clock is wrong.
	ErrTimestamp = webhook.ErrTimestamp
	// ErrID reports a message id that is empty, has more than 8,192 bytes, or has a byte that is
	// not visible ASCII, or a full stop. The specification forbids full stops, since an id with
	// one can be read as another id and timestamp.
	ErrID = webhook.ErrID
	// ErrTooLarge reports a body larger than Options.MaxBody.
	ErrTooLarge = errors.New("the body is too large")
)

// Options of an Inbox. The zero value of a field means its default.
type Options struct {
	// Source names the sender: ids of different sources do not meet. Two endpoints for the same
	// sender must have the same Source if it may deliver a message to either. Required; a name as
	// for [honker.NewQueue].
	Source string
	// Secrets are the keys that the sender may sign with: "whsec_" and the base64 of at least 24
	// random bytes. While one replaces another, give both. At least one is required.
	Secrets []string
	// Tolerance is how far the time of an attempt may lie from this machine's clock; default 5m.
	Tolerance time.Duration
	// MaxBody is the largest body in bytes; default 1 MiB.
	MaxBody int64
	// Retention is how long an id is recorded; default 14 days. It must be longer than the sender
	// goes on to deliver a message after its first attempt, outages of the receiver included: a
	// message that comes again later has its effect a second time. A relay retries without end by
	// default. Each row keeps the retention that it was recorded with. At least twice Tolerance.
	Retention time.Duration
	Observer  *Observer // nil: none
}

// Inbox receives the messages of one source. It is safe for concurrent use.
type Inbox struct {
	db     *honker.DB
	engine *engine.Engine
	opts   Options
	keys   webhook.Keys
	store  store.Inboxes
}

// New returns an inbox on db. It touches nothing. A missing or bad option is
// [honker.ErrInvalid]: unlike most constructors of honker it returns the error at once, so that
// a server with a bad secret does not start.
func New(db *honker.DB, opts *Options) (*Inbox, error) {
	in := &Inbox{db: db, engine: engine.Of(db)}
	var err error
	if in.opts, in.keys, err = opts.withDefaults(); err != nil {
		return nil, engine.Wrap("inbox", in.opts.Source, err)
	}
	in.opts.Observer = in.opts.Observer.contained(in.engine.Logger)
	return in, nil
}

func (o *Options) withDefaults() (out Options, keys webhook.Keys, err error) {
	if o != nil {
		out = *o
	}
	keys, errSecrets := parseSecrets(out.Secrets)
	err = errors.Join(engine.CheckName("Source", out.Source), errSecrets,
		engine.NotNegative("Tolerance", out.Tolerance), engine.NotNegative("Retention", out.Retention))
	if out.MaxBody < 0 {
		err = errors.Join(err, fmt.Errorf("%w: negative MaxBody %d", honker.ErrInvalid, out.MaxBody))
	}
	out.Tolerance = or(out.Tolerance, 5*time.Minute)
	out.MaxBody = or(out.MaxBody, 1<<20)
	out.Retention = or(out.Retention, 14*24*time.Hour)
	if out.Retention/2 < out.Tolerance {
		err = errors.Join(err, fmt.Errorf("%w: Retention %v is below twice the Tolerance %v: a captured request could be replayed",
			honker.ErrInvalid, out.Retention, out.Tolerance))
	}
	return out, keys, err
}

func parseSecrets(secrets []string) (webhook.Keys, error) {
	var all webhook.Keys
	for i, secret := range secrets {
		if strings.TrimSpace(secret) == "" {
			return nil, fmt.Errorf("%w: Secrets[%d] is blank", honker.ErrInvalid, i)
		}
		keys, err := webhook.ParseKeys(secret)
		if err != nil {
			return nil, fmt.Errorf("secret %d of %d: %w", i+1, len(secrets), err)
		}
		all = append(all, keys...)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%w: no Secrets", honker.ErrInvalid)
	}
	return all, nil
}

// or returns v, or otherwise if v is zero.
func or[V comparable](v, otherwise V) V {
	var zero V
	if v == zero {
		return otherwise
	}
	return v
}

// Verify checks the headers webhook-id, webhook-timestamp and webhook-signature of a request
// with that body, and returns the message. It is for requests that do not come to a [Inbox.Handler],
// and neither reads nor writes the file. The errors are [ErrSignature], [ErrTimestamp], [ErrID]
// and [ErrTooLarge].
func (in *Inbox) Verify(header http.Header, body []byte) (*Message, error) {
	if int64(len(body)) > in.opts.MaxBody {
		return nil, in.fail("verify", fmt.Errorf("%w: %d bytes, at most %d (Options.MaxBody)", ErrTooLarge, len(body), in.opts.MaxBody))
	}
	id, at, err := in.keys.Verify(header, body, time.Now(), in.opts.Tolerance)
	if err != nil {
		return nil, in.fail("verify", err)
	}
	return &Message{Source: in.opts.Source, ID: id, Type: header.Get("Content-Type"), SentAt: at, Payload: body}, nil
}

func (in *Inbox) fail(op string, err error) error {
	return engine.Wrap("inbox "+op, in.opts.Source, err)
}
