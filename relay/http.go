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

// HTTPOptions configures an [HTTP] handler. The zero value of a field selects its default.
type HTTPOptions struct {
	// Secret is the key that signs requests according to the Standard Webhooks specification
	// (standardwebhooks.com): "whsec_" followed by at least 24 random bytes in base64. To rotate a
	// secret, list several separated by spaces; each adds a signature. By default, requests aren't
	// signed.
	Secret string
	// Source is a prefix of all idempotency keys, separated by a slash. Queues with the same
	// name in different databases or families have the same keys. They need different Sources
	// if they post to the same endpoint.
	Source string
	// Header is added to each request. Headers that HTTP sets itself take precedence.
	Header http.Header
	// Timeout limits a single request, including redirects. The default is the client's Timeout, or
	// 10s if the client has none. A request never outlasts its lease, see [Lease].
	Timeout time.Duration
	// PublicOnly refuses connections to addresses outside the public internet, such as 127.0.0.1,
	// 10.0.0.1 or a cloud provider's metadata server. Set it for URLs supplied by customers. The
	// resolved address is checked on each dial. The client's Transport must be nil or an
	// *http.Transport without DialTLS. Its Dial functions are not used, and requests that would go
	// through a proxy fail.
	PublicOnly bool
}

// HTTP returns a handler for [Queue.Handle] that posts each message to url. The body is the
// payload, unchanged. Content-Type is the message's Type. Idempotency-Key is
// [Message.IdempotencyKey], in which % and all bytes other than visible ASCII are percent-encoded.
// With a Secret, the handler adds the headers webhook-id, webhook-timestamp and webhook-signature.
// The webhook-id is the same key with each period encoded as %2E.
//
// A 2xx response finishes the message. For all other responses, [ClassifyHTTP] determines the
// verdict and the error wraps an [HTTPError]. A 400 in which Go, nginx or Apache reports plain HTTP
// on an HTTPS port is retried, because the URL, not the message, is wrong. If the message will be
// retried, a Retry-After header is honored, up to one day. Connection errors and timeouts are
// retried. If the response to an accepted message is lost, the endpoint receives the message again
// with the same key.
//
// A request ends after HTTPOptions.Timeout or when the handler's ctx ends, which is before the
// lease expires. Up to five redirects are followed if they preserve the payload (307, 308) and stay
// on the host and port of url or upgrade from http to https. At most 64 KiB of the response is
// read, for at most one second.
//
// If client is nil, HTTP uses a client with its own connections and timeouts, which is shared by
// all such handlers. The client's Timeout and CheckRedirect are honored. A nil opts selects the
// defaults. Create one handler per URL and keep it, because each handler with both PublicOnly and a
// client has its own connections. Use [HTTPFunc] if each customer has its own URL. If url or an
// option is invalid, the handler returns [honker.ErrInvalid], and the relay retries the message.
func HTTP(client *http.Client, url string, opts *HTTPOptions) func(context.Context, *Message) error {
	s, err := newSink(newClients(client), url, opts)
	if err != nil {
		err = fmt.Errorf("relay HTTP: %w", err)
		return func(context.Context, *Message) error { return err }
	}
	return s.handle
}

// HTTPFunc returns a handler for [Queue.Handle] that posts each message, as [HTTP] does, to the
// endpoint that the given function returns for the message. Each customer can therefore have its
// own URL, secret and headers; [Message.Key] can identify the customer. Nil options select the
// defaults.
//
// The function is called before each attempt, so a changed URL takes effect on the next attempt. An
// error returned by the function is treated like an error returned by the handler: the partition
// waits and the message is retried, unless the error is a [Reject]. For a customer that no longer
// exists, return Reject(err). For a customer that may still be set up, return a plain error. An
// invalid URL, such as an empty string, or an invalid option is [honker.ErrInvalid] and is retried.
//
// If client is nil, HTTPFunc uses the client that all handlers share. The handler has a single
// connection pool for all its endpoints, even with both PublicOnly and a client. If the function is
// nil, the handler returns [honker.ErrInvalid].
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

// sink posts messages to an endpoint.
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
	maxHead      = 1 << 10 // bytes of a response kept for error messages
	answerTime   = time.Second
)

// clients holds a client for any address and a client for public addresses only. Both are created
// when they are first used.
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

// canonical returns a copy of header with canonical keys. A map literal may contain a header in a
// different case. Without canonical keys, that header would be sent in addition to the header that
// HTTP sets itself.
func canonical(header http.Header) http.Header {
	out := make(http.Header, len(header))
	for key, values := range header {
		key = http.CanonicalHeaderKey(key)
		out[key] = append(out[key], values...)
	}
	return out
}

// parseURL parses address. Its errors omit the path and query, which may contain a secret.
func parseURL(address string) (*url.URL, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, fmt.Errorf("%w: the URL is malformed", honker.ErrInvalid)
	}
	if u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("%w: the scheme of the URL is %q; use http or https", honker.ErrInvalid, u.Scheme)
	}
	if u.Hostname() == "" {
		return nil, fmt.Errorf("%w: the URL has no host", honker.ErrInvalid)
	}
	return u, nil
}

// newClient returns a copy of client, or a client on the shared transport, that follows redirects
// according to redirects.
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

// newTransport returns a transport like http.DefaultTransport. It keeps more idle connections per
// host, because processors post concurrently, and it limits the size of response headers.
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

// redirects returns a CheckRedirect function that refuses redirects to another endpoint and
// redirects that drop the payload. All other redirects are passed to next, which may be nil.
func redirects(next func(*http.Request, []*http.Request) error) func(*http.Request, []*http.Request) error {
	return func(to *http.Request, via []*http.Request) error {
		from := via[0]
		switch {
		case to.Method != from.Method:
			return fmt.Errorf("redirect %d to %s refused: it would drop the payload", to.Response.StatusCode, quoteURL(to.URL))
		case !sameEndpoint(from.URL, to.URL):
			return fmt.Errorf("redirect to another host refused: %s", quoteURL(to.URL))
		case len(via) > maxRedirects:
			return fmt.Errorf("stopped after %d redirects", maxRedirects)
		case next != nil:
			return next(to, via)
		}
		return nil
	}
}

// sameEndpoint reports whether b has the host and port of a, or is the https upgrade of a.
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

// quoteURL returns the scheme and host of u. Other parts of a URL may contain a secret.
func quoteURL(u *url.URL) string { return quote([]byte(u.Scheme + "://" + u.Host)) }

// handle posts m. It checks the type again because other programs may have inserted the message.
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
		return fmt.Errorf("the endpoint requires https: correct the URL: %w", err)
	}
	if verdict == VerdictReject {
		return Reject(err)
	}
	if resp.retryAfter > 0 {
		return RetryAfter(resp.retryAfter, err)
	}
	return err
}

// wantsTLS reports whether a is the response from a server that expects HTTPS on this port. Such a
// server has not read the message, so its status says nothing about the message.
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

// answer holds the parts of a response that determine the verdict.
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

// request returns the request for m at time now. The signature covers the unencoded payload.
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

// headerText percent-encodes text for use in a header, since queue names may contain any character.
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

// read returns the relevant parts of resp. It also drains the body, so that the connection can be
// reused, but gives up on a long or slow body, because the verdict does not depend on the rest.
func read(resp *http.Response, cancel context.CancelCauseFunc) *answer {
	defer time.AfterFunc(answerTime, func() { cancel(nil) }).Stop()
	// A read error is harmless: the quoted text is shorter, or the connection is not reused.
	head, _ := io.ReadAll(io.LimitReader(resp.Body, maxHead))
	_, _ = io.CopyN(io.Discard, resp.Body, maxAnswer-maxHead)
	return &answer{
		status:     resp.StatusCode,
		head:       head,
		retryAfter: retryAfter(resp.Header.Get("Retry-After"), time.Now()),
	}
}

// withoutURL removes the method and URL that net/http adds to errors. The path or query may contain
// a secret, and the error text is stored in the database.
func withoutURL(err error) error {
	var of *url.Error
	if errors.As(err, &of) {
		return of.Err
	}
	return err
}
