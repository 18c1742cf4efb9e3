// Package inbox receives messages from other nodes and applies each exactly once. It is the receiving
// side of a bridge between two databases; package relay is the sending side.
//
// A sender delivers a message at least once. An [Inbox] verifies the request, records the source and
// ID of the message, and runs a handler, all in a single transaction of the receiver's database. A
// repeated delivery gets the same response as the first and changes nothing. The handler can add a
// job, publish an event, or write to the application's own tables.
//
//	in, err := inbox.New(db, &inbox.Options{Source: "shop", Secrets: []string{secret}})
//	...
//	orders := honker.NewQueue[Order](db, "orders", nil)
//	http.Handle("POST /orders", in.Handler(inbox.Enqueue(orders)))
//
// Requests follow the Standard Webhooks specification (standardwebhooks.com). The sender can be
// any implementation of it, such as HTTP of package relay with a Secret.
//
// The first message creates the table _honkerx_inbox_received, which no other honker binding uses.
// [honker.DB.Maintain] deletes IDs whose retention has passed.
package inbox

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/webhook"
)

// Errors returned by [Inbox.Verify]. A request that fails with one of them has changed nothing.
var (
	// ErrSignature means that no signature of the request matches any of the secrets.
	ErrSignature = webhook.ErrSignature
	// ErrTimestamp means that the request's timestamp differs from the current time by more than
	// Options.Tolerance. Either the request is a replay or a clock is wrong.
	ErrTimestamp = webhook.ErrTimestamp
	// ErrID means that the message ID is empty, is longer than 8,192 bytes, or contains a period or
	// a byte other than visible ASCII. The specification forbids periods because they separate the
	// ID from the timestamp in the signed text.
	ErrID = webhook.ErrID
	// ErrTooLarge means that the body is larger than Options.MaxBody.
	ErrTooLarge = errors.New("the body is too large")
)

// Options configures an Inbox. The zero value of a field selects its default.
type Options struct {
	// Source names the sender. IDs are unique within a source. Two endpoints must use the same Source
	// if the sender may deliver a message to either of them. Source is required and follows the
	// naming rules of [honker.NewQueue].
	Source string
	// Secrets are the keys that the sender may use, each "whsec_" followed by at least 24 random
	// bytes in base64. At least one is required. During a rotation, list both the old and the new
	// secret.
	Secrets []string
	// Tolerance is the maximum difference between a request's timestamp and the local clock;
	// default 5m.
	Tolerance time.Duration
	// MaxBody is the maximum size of a body in bytes; default 1 MiB.
	MaxBody int64
	// Retention is how long the inbox remembers an ID; default 14 days, minimum twice Tolerance. It
	// must be longer than the sender keeps retrying a message, including receiver outages, because
	// a delivery after that takes effect again. By default a relay retries indefinitely. Changing
	// Retention does not affect IDs that are already recorded.
	Retention time.Duration
	Observer  *Observer // may be nil
}

// Inbox receives messages from a single source. It is safe for concurrent use.
type Inbox struct {
	db     *honker.DB
	engine *engine.Engine
	opts   Options
	keys   webhook.Keys
	store  engine.InboxStore
}

// New returns an inbox on db. It does not access the database. If an option is missing or invalid it
// returns [honker.ErrInvalid]. Unlike most constructors in honker, New returns the error immediately,
// so a server with an invalid secret doesn't start.
func New(db *honker.DB, opts *Options) (*Inbox, error) {
	in := &Inbox{db: db, engine: engine.Of(db)}
	in.store = in.engine.Stores.Inboxes
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
	out.Tolerance = cmp.Or(out.Tolerance, 5*time.Minute)
	out.MaxBody = cmp.Or(out.MaxBody, 1<<20)
	out.Retention = cmp.Or(out.Retention, 14*24*time.Hour)
	if out.Retention/2 < out.Tolerance {
		err = errors.Join(err, fmt.Errorf("%w: Retention %v must be at least twice the Tolerance %v, or a captured request could be replayed",
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

// Verify checks the headers webhook-id, webhook-timestamp and webhook-signature of a request with
// the given body, and returns the message. It does not access the database. Use it for requests
// that are not served by an [Inbox.Handler]. Verify fails with [ErrSignature], [ErrTimestamp],
// [ErrID] and [ErrTooLarge].
func (in *Inbox) Verify(header http.Header, body []byte) (*Message, error) {
	if int64(len(body)) > in.opts.MaxBody {
		return nil, in.fail("verify", fmt.Errorf("%w: it has %d bytes; the maximum is %d (Options.MaxBody)", ErrTooLarge, len(body), in.opts.MaxBody))
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
