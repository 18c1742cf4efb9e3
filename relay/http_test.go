package relay_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/worker"
	"github.com/honker-go/honker/relay"
)

// secret is the base64 encoding of 24 a's.
const secret = "whsec_YWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFh"

func order() *relay.Message {
	return &relay.Message{Queue: "orders", Partition: 1, Seq: 7, Type: "application/json", Payload: []byte(`{"total":19}`)}
}

// endpoint serves h until the test ends, and then closes connections that still have open requests.
func endpoint(t *testing.T, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	t.Cleanup(s.CloseClientConnections)
	return s
}

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

// A request carries the unmodified payload and the documented headers.
func TestHTTP_Request(t *testing.T) {
	var got *http.Request
	var body []byte
	s := endpoint(t, func(_ http.ResponseWriter, r *http.Request) {
		got = r
		body, _ = io.ReadAll(r.Body)
	})
	header := http.Header{"Authorization": {"Bearer x"}, "Content-Type": {"text/wrong"}, "idempotency-key": {"wrong"}, "X-Shop": {"a", "b"}}
	post := relay.HTTP(nil, s.URL+"/hook?shop=1", &relay.HTTPOptions{Header: header})
	header.Set("Authorization", "changed later")
	require.NoError(t, post(t.Context(), order()))
	require.Equal(t, "POST /hook?shop=1", got.Method+" "+got.RequestURI)
	require.Equal(t, `{"total":19}`, string(body))
	require.EqualValues(t, len(body), got.ContentLength)
	require.Equal(t, []string{"application/json"}, got.Header["Content-Type"])
	require.Equal(t, []string{"orders/1/7"}, got.Header["Idempotency-Key"])
	require.Equal(t, []string{"Bearer x"}, got.Header["Authorization"])
	require.Equal(t, []string{"a", "b"}, got.Header["X-Shop"])
	require.Empty(t, got.Header.Get("webhook-signature"))

	m := order()
	m.Queue, m.Payload = "käse\r\n 100%.eu", nil
	post = relay.HTTP(nil, s.URL, &relay.HTTPOptions{Source: "shop 7", Secret: secret + " " + secret})
	require.NoError(t, post(t.Context(), m))
	require.Empty(t, body)
	require.Zero(t, got.ContentLength)
	require.Equal(t, "shop%207/k%C3%A4se%0D%0A%20100%25.eu/1/7", got.Header.Get("Idempotency-Key"))
	require.Equal(t, "shop%207/k%C3%A4se%0D%0A%20100%25%2Eeu/1/7", got.Header.Get("webhook-id"))
	require.NotEmpty(t, got.Header.Get("webhook-timestamp"))
	require.Len(t, strings.Fields(got.Header.Get("webhook-signature")), 2)
}

// A response other than 2xx is an HTTPError with the beginning of the body.
func TestHTTP_Answer(t *testing.T) {
	s := endpoint(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusTeapot)
		fmt.Fprintf(w, "short\r\nand\x00 stout %s", strings.Repeat("x", 1<<20))
	})
	err := relay.HTTP(nil, s.URL+"/secret-path?token=x", nil)(t.Context(), order())
	var answer *relay.HTTPError
	require.ErrorAs(t, err, &answer)
	require.Equal(t, http.StatusTeapot, answer.Status)
	require.Len(t, answer.Answer, 256)
	require.Equal(t, "short and stout", strings.TrimRight(answer.Answer, " x"))
	require.Equal(t, "post to "+s.URL+": 418 I'm a teapot: "+answer.Answer, err.Error())
}

// verdict returns how the relay reacts to a handler error.
func verdict(err error) string {
	var d *worker.Directive
	switch {
	case err == nil:
		return "done"
	case !errors.As(err, &d):
		return "retry"
	case d.Outcome == worker.Died:
		return "reject"
	}
	return "retry after " + d.Delay.String()
}

// Each status is handled as ClassifyHTTP says, and Retry-After is honored only for retries.
func TestHTTP_Status(t *testing.T) {
	after := ""
	code := 0
	s := endpoint(t, func(w http.ResponseWriter, _ *http.Request) {
		if after != "" {
			w.Header().Set("Retry-After", after)
		}
		w.WriteHeader(code)
	})
	post := relay.HTTP(nil, s.URL, nil)
	for _, code = range []int{200, 202, 204, 300, 304, 400, 401, 403, 404, 405, 408, 409, 410, 413, 415, 421, 422, 425, 429, 451, 499, 500, 501, 502, 503, 504, 599} {
		want := relay.ClassifyHTTP(code).String()
		after = ""
		require.Equal(t, want, verdict(post(t.Context(), order())), "%d", code)
		after = "120"
		if want == "retry" {
			want = "retry after 2m0s"
		}
		require.Equal(t, want, verdict(post(t.Context(), order())), "%d", code)
	}
	code, after = 503, "31536000"
	require.Equal(t, "retry after 24h0m0s", verdict(post(t.Context(), order())))
	after = time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat)
	require.Equal(t, "retry", verdict(post(t.Context(), order())))
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A client without a Transport uses http.DefaultTransport, which the application may have replaced.
func TestHTTP_ClientWithoutTransport(t *testing.T) {
	was := http.DefaultTransport
	defer func() { http.DefaultTransport = was }()
	replaced := errors.New("replaced")
	http.DefaultTransport = roundTrip(func(*http.Request) (*http.Response, error) { return nil, replaced })
	require.ErrorIs(t, relay.HTTP(&http.Client{}, "http://127.0.0.1", nil)(t.Context(), order()), replaced)
}

// Any 2xx status finishes a message, with or without a body.
func TestHTTP_Done(t *testing.T) {
	for _, code := range []int{200, 201, 202, 204, 299} {
		s := endpoint(t, status(code))
		require.NoError(t, relay.HTTP(s.Client(), s.URL, nil)(t.Context(), order()), "%d", code)
	}
}

// When the lease ends, a pending request is canceled on both the client and the server.
func TestHTTP_EndpointHangs_LeaseEnds(t *testing.T) {
	come, gone := make(chan struct{}), make(chan struct{})
	s := endpoint(t, func(_ http.ResponseWriter, r *http.Request) {
		close(come)
		_, _ = io.Copy(io.Discard, r.Body) // the server notices a canceled request only after reading the body
		<-r.Context().Done()
		close(gone)
	})
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	err := relay.HTTP(nil, s.URL, nil)(ctx, order())
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotErrorIs(t, err, honker.ErrInvalid)
	select {
	case <-come:
		<-gone
	default: // on a stalled machine, the request may never arrive
	}
}

// If the lease ends during a request, the message is sent again with the same key, before the next
// message.
func TestHTTP_EndpointHangs_MessageIsRetried(t *testing.T) {
	cut := make(chan time.Duration, 1)
	var mu sync.Mutex
	var keys []string
	s := endpoint(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		mu.Lock()
		keys = append(keys, r.Header.Get("Idempotency-Key"))
		first := len(keys) == 1
		mu.Unlock()
		if first {
			began := time.Now()
			<-r.Context().Done()
			cut <- time.Since(began)
		}
	})
	db := honkertest.Open(t, nil)
	r := relay.New(db, &relay.Options{RetryBase: time.Millisecond})
	q := r.Queue("orders", 1)
	q.Handle(relay.HTTP(nil, s.URL, nil), relay.Lease(10*time.Second, 9500*time.Millisecond))
	sendN(t, q, 0, 2)
	stop := start(t, r)
	drained(t, q)
	require.NoError(t, stop())
	require.Greater(t, len(keys), 2)
	require.Equal(t, []string{"orders/0/1", "orders/0/2"}, slices.Compact(keys))
	require.Less(t, <-cut, 10*time.Second, "before the lease ended")
}

// A message that the endpoint refuses permanently becomes a dead letter with the response as the
// reason. A message that the endpoint refuses temporarily is retried after the requested time.
func TestHTTP_RefusedMessages(t *testing.T) {
	var calls atomic.Int32
	s := endpoint(t, func(w http.ResponseWriter, r *http.Request) {
		switch key := r.Header.Get("Idempotency-Key"); {
		case key == "orders/0/2":
			http.Error(w, "no such order", http.StatusUnprocessableEntity)
		case key == "orders/0/3" && calls.Add(1) == 1:
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
		}
	})
	db := honkertest.Open(t, nil)
	died, retried := make(chan relay.Died, 9), make(chan relay.Retried, 9)
	r := relay.New(db, &relay.Options{RetryBase: time.Hour, Observer: &relay.Observer{
		Dead: func(d relay.Died) { died <- d },
		Retried: func(r relay.Retried) {
			select {
			case retried <- r:
			default: // drop further values
			}
		},
	}})
	q := r.Queue("orders", 1)
	q.Handle(relay.HTTP(nil, s.URL, nil))
	sendN(t, q, 0, 4)
	stop := start(t, r)
	drained(t, q)
	require.NoError(t, stop())
	d := <-died
	require.EqualValues(t, 2, d.Seq)
	require.Contains(t, d.Reason, "422 Unprocessable Entity: no such order")
	require.Empty(t, died)
	require.ErrorContains(t, (<-retried).Err, "429 Too Many Requests")
	require.Empty(t, retried)
}

// A message inserted by another program with a Type that isn't valid in a header is rejected.
func TestHTTP_BadType(t *testing.T) {
	s := endpoint(t, status(200))
	m := order()
	m.Type = "text/plain\r\nX-Admin: 1"
	require.Equal(t, "reject", verdict(relay.HTTP(nil, s.URL, nil)(t.Context(), m)))
}

// Messages wait while the URL is invalid; none becomes a dead letter.
func TestHTTP_BadURL_MessagesWait(t *testing.T) {
	db := honkertest.Open(t, nil)
	retried := make(chan relay.Retried, 3)
	r := relay.New(db, &relay.Options{RetryBase: time.Millisecond, RetryMax: time.Millisecond, Observer: &relay.Observer{
		Retried: func(r relay.Retried) {
			select {
			case retried <- r:
			default: // drop further values
			}
		},
	}})
	q := r.Queue("orders", 1)
	q.Handle(relay.HTTP(nil, "example.com/hook", nil))
	sendN(t, q, 0, 3)
	stop := start(t, r)
	for range 3 {
		require.ErrorIs(t, (<-retried).Err, honker.ErrInvalid)
	}
	require.NoError(t, stop())
	require.EqualValues(t, 3, waiting(t, q))
}

// Timeout cancels the request, and the error says so. The handler's ctx is not canceled.
func TestHTTP_EndpointHangs_Timeout(t *testing.T) {
	s := endpoint(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	})
	err := relay.HTTP(nil, s.URL, &relay.HTTPOptions{Timeout: 20 * time.Millisecond})(t.Context(), order())
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "no answer within 20ms")
	require.NoError(t, t.Context().Err())
}

// A request to a listener that never responds ends with ctx.
func TestHTTP_EndpointSilent(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err = relay.HTTP(nil, "http://"+l.Addr().String(), nil)(ctx, order())
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestHTTP_EndpointGone(t *testing.T) {
	s := httptest.NewServer(status(200))
	s.Close()
	err := relay.HTTP(nil, s.URL+"/secret-path", nil)(t.Context(), order())
	require.ErrorContains(t, err, "refused")
	require.NotContains(t, err.Error(), "secret-path")
}

// The status is used even if the body never ends, because HTTP does not wait for the rest of the
// body.
func TestHTTP_AnswerWithoutEnd(t *testing.T) {
	for name, body := range map[string]func(io.Writer) bool{
		"fast": func(w io.Writer) bool { _, err := w.Write(make([]byte, 32<<10)); return err == nil },
		"slow": func(w io.Writer) bool { return false },
	} {
		for _, code := range []int{200, 500} {
			t.Run(fmt.Sprintf("%s %d", name, code), func(t *testing.T) {
				left := make(chan struct{})
				s := endpoint(t, func(w http.ResponseWriter, r *http.Request) {
					w.WriteHeader(code)
					_, _ = io.WriteString(w, "and so on ")
					_ = http.NewResponseController(w).Flush()
					for body(w) {
					}
					<-r.Context().Done()
					close(left)
				})
				err := relay.HTTP(nil, s.URL, nil)(t.Context(), order())
				if code == 200 {
					require.NoError(t, err)
				} else {
					require.ErrorContains(t, err, "500 Internal Server Error: and so on")
				}
				<-left // the connection was closed
			})
		}
	}
}

// Connections are reused, even after an error response with a body.
func TestHTTP_ConnectionsAreReused(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(500)
		_, _ = w.Write(make([]byte, 60<<10))
	}))
	var connections atomic.Int32
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	s.Start()
	defer s.Close()
	for range 5 {
		require.Error(t, relay.HTTP(nil, s.URL, nil)(t.Context(), order()))
	}
	require.EqualValues(t, 1, connections.Load())
}

// Redirects are followed only on the same host and with the payload.
func TestHTTP_Redirect(t *testing.T) {
	var reached atomic.Int32
	other := endpoint(t, func(http.ResponseWriter, *http.Request) { reached.Add(1) })
	var bodies []string
	s := endpoint(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		bodies = append(bodies, r.Method+" "+r.URL.Path+" "+string(body)+" "+r.Header.Get("Idempotency-Key"))
		switch r.URL.Path {
		case "/moved":
			http.Redirect(w, r, "/found", http.StatusPermanentRedirect)
		case "/loop":
			http.Redirect(w, r, "/loop", http.StatusTemporaryRedirect)
		case "/elsewhere":
			http.Redirect(w, r, other.URL+"/secret-path", http.StatusTemporaryRedirect)
		case "/old":
			http.Redirect(w, r, "/found", http.StatusMovedPermanently)
		case "/nowhere":
			w.WriteHeader(http.StatusTemporaryRedirect)
		}
	})
	post := func(path string) error {
		bodies = nil
		return relay.HTTP(nil, s.URL+path, nil)(t.Context(), order())
	}
	require.NoError(t, post("/moved"))
	require.Equal(t, []string{`POST /moved {"total":19} orders/1/7`, `POST /found {"total":19} orders/1/7`}, bodies)

	require.ErrorContains(t, post("/loop"), "stopped after 5 redirects")
	require.Len(t, bodies, 6)

	err := post("/elsewhere")
	require.ErrorContains(t, err, "redirect to another host refused: "+other.URL)
	require.NotContains(t, err.Error(), "secret-path")
	require.Zero(t, reached.Load())

	require.ErrorContains(t, post("/old"), "refused: it would drop the payload")
	require.Len(t, bodies, 1)
	require.ErrorContains(t, post("/nowhere"), "307 Temporary Redirect")
}

// The client's CheckRedirect is also called.
func TestHTTP_Redirect_ClientDecides(t *testing.T) {
	s := endpoint(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/again", http.StatusTemporaryRedirect)
	})
	no := errors.New("no redirects here")
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return no }}
	require.ErrorIs(t, relay.HTTP(client, s.URL, nil)(t.Context(), order()), no)
}

// PublicOnly checks the dialed address, for any host name and any client.
func TestHTTP_PublicOnly(t *testing.T) {
	var reached atomic.Int32
	s := endpoint(t, func(http.ResponseWriter, *http.Request) { reached.Add(1) })
	at, err := url.Parse(s.URL)
	require.NoError(t, err)
	port := at.Port()
	dials := &http.Transport{DialContext: (&net.Dialer{}).DialContext}
	defer dials.CloseIdleConnections()
	warm := &http.Client{Transport: dials}
	require.NoError(t, relay.HTTP(warm, s.URL, nil)(t.Context(), order())) // leaves an idle connection that must not be reused
	require.EqualValues(t, 1, reached.Swap(0))

	for _, client := range []*http.Client{nil, {}, warm, {Transport: http.DefaultTransport}, {Transport: http.DefaultTransport.(*http.Transport).Clone()}} {
		for _, host := range []string{"127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "169.254.169.254", "10.0.0.1", "0.0.0.0"} {
			err := relay.HTTP(client, "http://"+host+":"+port, &relay.HTTPOptions{PublicOnly: true})(t.Context(), order())
			require.ErrorContains(t, err, "refused: it is not public", "%s", host)
		}
	}
	require.Zero(t, reached.Load())
}

type wrapped struct{ http.RoundTripper }

// PublicOnly refuses clients whose connections it cannot check.
func TestHTTP_PublicOnly_ClientsItCannotGuard(t *testing.T) {
	var reached atomic.Int32
	s := endpoint(t, func(http.ResponseWriter, *http.Request) { reached.Add(1) })
	opts := &relay.HTTPOptions{PublicOnly: true}
	for _, rt := range []http.RoundTripper{
		wrapped{http.DefaultTransport},
		&http.Transport{DialTLSContext: (&net.Dialer{}).DialContext},
	} {
		err := relay.HTTP(&http.Client{Transport: rt}, s.URL, opts)(t.Context(), order())
		require.ErrorIs(t, err, honker.ErrInvalid)
		require.ErrorContains(t, err, "PublicOnly")
	}
	proxied := &http.Transport{Proxy: func(*http.Request) (*url.URL, error) { return url.Parse(s.URL) }}
	err := relay.HTTP(&http.Client{Transport: proxied}, "http://example.com", opts)(t.Context(), order())
	require.ErrorContains(t, err, "cannot check connections through a proxy")
	require.Zero(t, reached.Load())
}

// With an invalid option, every call returns an error that does not reject the message.
func TestHTTP_BadOptions(t *testing.T) {
	for _, address := range []string{"", "example.com/hook", "/hook", "ftp://example.com", "http://", "http://:80", "http://a b", "http://[::1", "mailto:a@example.com", "\x7f"} {
		err := relay.HTTP(nil, address, nil)(t.Context(), order())
		require.ErrorIs(t, err, honker.ErrInvalid, "%q", address)
	}
	for _, opts := range []relay.HTTPOptions{{Secret: "whsec_"}, {Secret: "whsec_token-that-is-none"}, {Timeout: -1}} {
		err := relay.HTTP(nil, "http://example.com", &opts)(t.Context(), order())
		require.ErrorIs(t, err, honker.ErrInvalid)
		require.NotContains(t, err.Error(), "token")
	}
	err := relay.HTTP(nil, "http://user:token@/path", nil)(t.Context(), order())
	require.ErrorIs(t, err, honker.ErrInvalid)
	require.NotContains(t, err.Error(), "token")
}
