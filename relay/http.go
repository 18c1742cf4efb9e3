package relay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/webhook"
)

// HTTPOptions of an [HTTP] sink. The zero value of a field means its default.
type HTTPOptions struct {
	// Secret signs each request as the Standard Webhooks specification says (see
	// standardwebhooks.com): "whsec_" and the base64 of at least 24 random bytes. Several,
	// separated by spaces, give several signatures, while one secret replaces another.
	// Default: no signature.
	Secret string
	// Source stands before each idempotency key, and a slash between them. Queues of the same
	// name in several databases or families count alike: give each a Source where they feed the
	// same endpoint.
	Source string
	// Header goes with each request. What HTTP sets itself replaces what is here.
	Header http.Header
	// Timeout bounds one request, redirects included; default: 10s, or the Timeout of the client
	// if it has one. A Timeout beyond the lease leaves the end to that, see [Lease].
	Timeout time.Duration
	// PublicOnly refuses to connect to addresses that are not on the public internet, such
	// as 127.0.0.1, 10.0.0.1 or a cloud's metadata server: for URLs that customers enter. It
	// is the address behind the name that counts, each time it is dialed. The client is to
	// have an *http.Transport, or none, without a DialTLS of its own; its Dial functions are
	// not used, and a request that would go through a proxy fails.
	PublicOnly bool
}

// HTTP returns a handler for [Queue.Handle] that posts each message to url: the payload as
// it is, Content-Type from its Type, Idempotency-Key from [Message.IdempotencyKey], with
// what is not visible ASCII, and %, in the form %41. With a Secret the headers webhook-id,
// which is the same key with %2E for a full stop, webhook-timestamp and webhook-signature
// are added.
//
// The message is done when the endpoint answers 2xx; for other answers [ClassifyHTTP]
// decides, and the error is an [HTTPError] for errors.As. A 400 that says that http was spoken to
// a port of https, as Go, nginx and Apache do, is retried: the URL is wrong, not the message.
// Retry-After is obeyed, for a day at most, where the message is to be tried again. Whatever goes
// wrong on the way is retried. An endpoint that has taken a message can have its answer lost: it
// gets the same key again.
//
// A request ends after HTTPOptions.Timeout, and with the handler's ctx, which is a headroom
// before the end of the lease. Redirects are followed up to five times, within the host and port
// of url, or from http to https, if they keep the payload (307, 308). Of an answer 64 KiB are read
// at most, for a second.
//
// nil client: one with connections and timeouts of its own, shared by all sinks. The Timeout
// and CheckRedirect of a client are kept too. nil opts means defaults. Make one handler for
// each URL and keep it: with PublicOnly and a client each has connections of its own. [HTTPFunc]
// is for a URL for each customer. A bad url or option is [honker.ErrInvalid] from the handler, which the relay retries: it is not
// the fault of the message.
func HTTP(client *http.Client, url string, opts *HTTPOptions) func(context.Context, *Message) error {
	s, err := newSink(newClients(client), url, opts)
	if err != nil {
		err = fmt.Errorf("relay HTTP: %w", err)
		return func(context.Context, *Message) error { return err }
	}
	return s.handle
}

// HTTPFunc returns a handler for [Queue.Handle] that posts each message as [HTTP] does, to the
// endpoint that the function returns for it: each customer can have a URL, a secret and headers of
// its own. [Message.Key] says which customer a message is for. nil options mean defaults.
//
// The function runs before each attempt, so a URL that was changed counts from the next one on. An
// error of the function decides as that of a handler: the message is retried, and its partition
// waits, unless the function returns [Reject]. For a customer that is unknown for good return
// Reject(err); for one that may still be set up return a plain error. A bad url or option, such as
// an empty URL, is [honker.ErrInvalid] and is retried.
//
// nil client: the connections that all sinks share. The handler keeps connections for all of its
// endpoints together, also with PublicOnly and a client. A nil function is [honker.ErrInvalid] from
// the handler.
func HTTPFunc(client *http.Client, endpoint func(ctx context.Context, m *Message) (url string, opts *HTTPOptions, err error)) func(context.Context, *Message) error {
	clients := newClients(client)
	return func(ctx context.Context, m *Message) error {
		if endpoint == nil {
			return fmt.Errorf("relay HTTP: %w: nil function", honker.ErrInvalid)
		}
		url, opts, err := endpoint(ctx, m)
		if err != nil {
			return fmt.Errorf("relay HTTP: endpoint: %w", err)
		}
		s, err := newSink(clients, url, opts)
		if err != nil {
			return fmt.Errorf("relay HTTP: %w", err)
		}
		return s.handle(ctx, m)
	}
}

// sink is an endpoint.
type sink struct {
	client *http.Client
	url    *url.URL
	opts   HTTPOptions
	keys   webhook.Keys
}

const (
	httpTimeout  = 10 * time.Second
	maxRedirects = 5
	maxAnswer    = 64 << 10
	maxHead      = 1 << 10 // of an answer, from which an error quotes
	answerTime   = time.Second
)

// clients are a client on any address, and another on public addresses only. Each is made by its
// first use.
type clients struct{ plain, public func() (*http.Client, error) }

func newClients(client *http.Client) clients {
	return clients{
		plain:  sync.OnceValues(func() (*http.Client, error) { return newClient(client, false) }),
		public: sync.OnceValues(func() (*http.Client, error) { return newClient(client, true) }),
	}
}

func newSink(c clients, address string, opts *HTTPOptions) (*sink, error) {
	s := &sink{}
	if opts != nil {
		s.opts = *opts
		s.opts.Header = canonical(opts.Header)
	}
	var errURL, errSecret, errClient error
	s.url, errURL = parseURL(address)
	s.keys, errSecret = webhook.ParseKeys(s.opts.Secret)
	if s.opts.PublicOnly {
		s.client, errClient = c.public()
	} else {
		s.client, errClient = c.plain()
	}
	err := errors.Join(errURL, errSecret, errClient)
	if s.opts.Timeout < 0 {
		err = errors.Join(err, fmt.Errorf("%w: negative Timeout %s", honker.ErrInvalid, s.opts.Timeout))
	}
	if err == nil && s.opts.Timeout == 0 && s.client.Timeout <= 0 {
		s.opts.Timeout = httpTimeout
	}
	return s, err
}

// canonical is a copy of header with keys as HTTP sets them: of two that differ by case, as those
// of a literal may, both would be sent.
func canonical(header http.Header) http.Header {
	out := make(http.Header, len(header))
	for key, values := range header {
		key = http.CanonicalHeaderKey(key)
		out[key] = append(out[key], values...)
	}
	return out
}

// parseURL says nothing of the url's path and query, which can hold a secret.
func parseURL(address string) (*url.URL, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, fmt.Errorf("%w: the URL cannot be read", honker.ErrInvalid)
	}
	if u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("%w: a URL with the scheme %q, not http or https", honker.ErrInvalid, u.Scheme)
	}
	if u.Hostname() == "" {
		return nil, fmt.Errorf("%w: a URL without a host", honker.ErrInvalid)
	}
	return u, nil
}

// newClient is client, or one on the shared connections, with the redirects of a sink.
func newClient(client *http.Client, publicOnly bool) (*http.Client, error) {
	c := http.Client{Transport: sharedTransport()}
	if client != nil {
		c = *client
	}
	c.CheckRedirect = redirects(c.CheckRedirect)
	if !publicOnly {
		return &c, nil
	}
	if client == nil || client.Transport == nil {
		c.Transport = publicTransport()
		return &c, nil
	}
	var err error
	c.Transport, err = publicVersion(client.Transport)
	return &c, err
}

var sharedTransport = sync.OnceValue(newTransport)

// newTransport has what http.DefaultTransport has, with room for as many connections to one
// host as a relay has processors, and shorter answers.
func newTransport() *http.Transport {
	return &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		ForceAttemptHTTP2:      true,
		MaxIdleConns:           100,
		MaxIdleConnsPerHost:    16,
		IdleConnTimeout:        90 * time.Second,
		TLSHandshakeTimeout:    10 * time.Second,
		ExpectContinueTimeout:  time.Second,
		MaxResponseHeaderBytes: maxAnswer,
		DialContext:            dialer(nil).DialContext,
	}
}

// redirects refuses a redirect that would take the message elsewhere or leave its payload
// behind; next, which may be nil, decides about the others.
func redirects(next func(*http.Request, []*http.Request) error) func(*http.Request, []*http.Request) error {
	return func(to *http.Request, via []*http.Request) error {
		from := via[0]
		switch {
		case to.Method != from.Method:
			return fmt.Errorf("redirect %d refused, which drops the payload: it leads to %s", to.Response.StatusCode, quoteURL(to.URL))
		case !sameEndpoint(from.URL, to.URL):
			return fmt.Errorf("redirect to another host refused: %s", quoteURL(to.URL))
		case len(via) > maxRedirects:
			return fmt.Errorf("more than %d redirects", maxRedirects)
		case next != nil:
			return next(to, via)
		}
		return nil
	}
}

// sameEndpoint reports that b has the host and port of a, or is a by https.
func sameEndpoint(a, b *url.URL) bool {
	if !strings.EqualFold(a.Hostname(), b.Hostname()) {
		return false
	}
	upgrade := a.Scheme == "http" && b.Scheme == "https" && portOf(a) == "80" && portOf(b) == "443"
	return upgrade || a.Scheme == b.Scheme && portOf(a) == portOf(b)
}

func portOf(u *url.URL) string {
	if port := u.Port(); port != "" {
		return port
	}
	if u.Scheme == "http" {
		return "80"
	}
	return "443"
}

// quoteURL leaves out what can hold a secret.
func quoteURL(u *url.URL) string { return quote([]byte(u.Scheme + "://" + u.Host)) }

// handle posts one message. Its type was checked by Send, but not by another program's INSERT.
func (s *sink) handle(ctx context.Context, m *Message) error {
	if err := checkType(m.Type); err != nil {
		return Reject(err)
	}
	resp, err := s.post(ctx, m)
	if err != nil {
		return fmt.Errorf("post to %s: %w", quoteURL(s.url), err)
	}
	verdict := ClassifyHTTP(resp.status)
	if verdict == VerdictDone {
		return nil
	}
	err = fmt.Errorf("post to %s: %w", quoteURL(s.url), &HTTPError{Status: resp.status, Answer: quote(resp.head)})
	if s.url.Scheme == "http" && wantsTLS(resp) {
		return fmt.Errorf("the endpoint speaks https: correct the URL: %w", err)
	}
	if verdict == VerdictReject {
		return Reject(err)
	}
	if resp.retryAfter > 0 {
		return RetryAfter(resp.retryAfter, err)
	}
	return err
}

// wantsTLS tells whether a server has answered to http that it speaks https. No such answer is
// about the message: the server has not read it.
func wantsTLS(a *answer) bool {
	if a.status != http.StatusBadRequest {
		return false
	}
	head := strings.ToLower(string(a.head))
	for _, text := range []string{
		"sent an http request to an https server",      // Go
		"plain http request was sent to https port",    // nginx
		"speaking plain http to an ssl-enabled server", // Apache
	} {
		if strings.Contains(head, text) {
			return true
		}
	}
	return false
}

// answer is what of a response matters.
type answer struct {
	status     int
	head       []byte
	retryAfter time.Duration
}

func (s *sink) post(ctx context.Context, m *Message) (*answer, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if d := s.opts.Timeout; d > 0 {
		late := fmt.Errorf("no answer within %s: %w", d, context.DeadlineExceeded)
		defer time.AfterFunc(d, func() { cancel(late) }).Stop()
	}
	req, err := s.request(ctx, m, time.Now())
	if err != nil {
		return nil, err
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return nil, withoutURL(err)
	}
	defer resp.Body.Close()
	return read(resp, cancel), nil
}

// request is what is sent for m at now. The signature is of the payload as it is.
func (s *sink) request(ctx context.Context, m *Message, now time.Time) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url.String(), bytes.NewReader(m.Payload))
	if err != nil {
		return nil, err
	}
	if s.opts.Header != nil {
		req.Header = s.opts.Header.Clone()
	}
	key := m.IdempotencyKey()
	if s.opts.Source != "" {
		key = s.opts.Source + "/" + key
	}
	key = headerText(key)
	req.Header.Set("Content-Type", m.Type)
	req.Header.Set("Idempotency-Key", key)
	s.keys.Sign(req.Header, key, now, m.Payload)
	return req, nil
}

// headerText makes text fit for a header, whatever the name of the queue has in it.
func headerText(text string) string {
	var out strings.Builder
	for _, b := range []byte(text) {
		if b <= ' ' || b == '%' || b > '~' {
			fmt.Fprintf(&out, "%%%02X", b)
		} else {
			out.WriteByte(b)
		}
	}
	return out.String()
}

// read takes the body too, so that the connection can be used again, unless it is long or
// slow. What the answer means is known without it.
func read(resp *http.Response, cancel context.CancelCauseFunc) *answer {
	defer time.AfterFunc(answerTime, func() { cancel(nil) }).Stop()
	head, _ := io.ReadAll(io.LimitReader(resp.Body, maxHead))
	_, _ = io.CopyN(io.Discard, resp.Body, maxAnswer-maxHead)
	return &answer{
		status:     resp.StatusCode,
		head:       head,
		retryAfter: retryAfter(resp.Header.Get("Retry-After"), time.Now()),
	}
}

// withoutURL drops the method and URL that net/http adds: a path or a query can hold a
// secret, and the error is kept in the file.
func withoutURL(err error) error {
	var of *url.Error
	if errors.As(err, &of) {
		return of.Err
	}
	return err
}
