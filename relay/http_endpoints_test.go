package relay_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/relay"
)

// If an HTTPS server answers a plain HTTP request with 400, the message is retried, because the URL is
// wrong and the message was not read.
func TestHTTP_EndpointSpeaksHTTPS_MessagesWait(t *testing.T) {
	s := httptest.NewUnstartedServer(status(http.StatusOK))
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.StartTLS()
	t.Cleanup(s.Close)
	err := relay.HTTP(nil, "http://"+s.Listener.Addr().String(), nil)(t.Context(), order())
	require.Equal(t, "retry", verdict(err))
	require.ErrorContains(t, err, "the endpoint requires https")
	var answer *relay.HTTPError
	require.ErrorAs(t, err, &answer)
	require.Equal(t, http.StatusBadRequest, answer.Status)
	require.NoError(t, relay.HTTP(s.Client(), s.URL, nil)(t.Context(), order()))
}

// Other servers' error messages are recognized, too. Any other 400 still rejects the message.
func TestHTTP_EndpointSpeaksHTTPS_Words(t *testing.T) {
	text := ""
	s := endpoint(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, text)
	})
	post := relay.HTTP(nil, s.URL, nil)
	for _, text = range []string{
		"Client sent an HTTP request to an HTTPS server.\n",
		"<html>\r\n<head><title>400 The plain HTTP request was sent to HTTPS port</title></head>",
		"<p>Your browser sent a request that this server could not understand.<br />\nReason: You're speaking plain HTTP to an SSL-enabled server port.",
	} {
		require.Equal(t, "retry", verdict(post(t.Context(), order())), text)
	}
	for _, text = range []string{"", "total is missing", "field https is no URL"} {
		require.Equal(t, "reject", verdict(post(t.Context(), order())), text)
	}
}

// The client's Timeout takes precedence over HTTP's default timeout.
func TestHTTP_Timeout_OfTheClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			client *http.Client
			opts   *relay.HTTPOptions
			want   time.Duration
		}{
			{&http.Client{}, nil, 10 * time.Second},
			{&http.Client{Timeout: 25 * time.Second}, nil, 25 * time.Second},
			{&http.Client{Timeout: 25 * time.Second}, &relay.HTTPOptions{Timeout: time.Second}, time.Second},
			{&http.Client{}, &relay.HTTPOptions{Timeout: time.Hour}, 28 * time.Second},
		} {
			c.client.Transport = hangingTransport{}
			ctx, cancel := context.WithTimeout(t.Context(), 28*time.Second)
			began := time.Now()
			require.Error(t, relay.HTTP(c.client, "http://example.com", c.opts)(ctx, order()))
			require.Equal(t, c.want, time.Since(began))
			cancel()
		}
	})
}

// hangingTransport sends nothing and waits until the request is canceled.
type hangingTransport struct{}

func (hangingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, context.Cause(r.Context())
}

// HTTPFunc uses a URL, a secret and headers for each customer. The function decides whether a message
// for an unknown customer waits or becomes a dead letter.
func TestHTTPFunc(t *testing.T) {
	type request struct{ path, auth, signed string }
	var mu sync.Mutex
	var got []request
	s := endpoint(t, func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, request{r.URL.Path, r.Header.Get("Authorization"), fmt.Sprint(r.Header.Get("webhook-signature") != "")})
	})
	errUnknown := errors.New("no such customer")
	post := relay.HTTPFunc(nil, func(_ context.Context, m *relay.Message) (string, *relay.HTTPOptions, error) {
		switch m.Key {
		case "acme":
			return s.URL + "/acme", &relay.HTTPOptions{Secret: secret}, nil
		case "blau":
			return s.URL + "/blau", &relay.HTTPOptions{Header: http.Header{"Authorization": {"Bearer x"}}}, nil
		case "cleo":
			return s.URL + "/cleo", nil, nil
		case "later":
			return "", nil, errUnknown
		case "unset":
			return "", nil, nil
		}
		return "", nil, relay.Reject(errUnknown)
	})
	of := func(key string) *relay.Message {
		m := order()
		m.Key = key
		return m
	}
	for _, key := range []string{"acme", "blau", "cleo"} {
		require.NoError(t, post(t.Context(), of(key)))
	}
	require.Equal(t, []request{{"/acme", "", "true"}, {"/blau", "Bearer x", "false"}, {"/cleo", "", "false"}}, got)
	require.Equal(t, "retry", verdict(post(t.Context(), of("later"))))
	require.Equal(t, "reject", verdict(post(t.Context(), of("never"))))
	require.ErrorIs(t, post(t.Context(), of("never")), errUnknown)
	require.Equal(t, "retry", verdict(post(t.Context(), of("unset"))))
	require.ErrorIs(t, post(t.Context(), of("unset")), honker.ErrInvalid)
	require.ErrorIs(t, relay.HTTPFunc(nil, nil)(t.Context(), order()), honker.ErrInvalid)
}

// All endpoints of an HTTPFunc share connections, even with PublicOnly.
func TestHTTPFunc_PublicOnly(t *testing.T) {
	s := endpoint(t, status(http.StatusOK))
	post := relay.HTTPFunc(&http.Client{Transport: &http.Transport{}}, func(context.Context, *relay.Message) (string, *relay.HTTPOptions, error) {
		return s.URL, &relay.HTTPOptions{PublicOnly: true}, nil
	})
	before := runtime.NumGoroutine()
	for range 50 {
		require.ErrorContains(t, post(t.Context(), order()), "public")
	}
	require.Less(t, runtime.NumGoroutine(), before+25)
}
