package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/bcrypt"
)

// Hashes in the format of crypt(3), as htpasswd writes them.
const (
	hashOfSecret = "$2y$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a"
	hashOfGrosse = "$2b$05$abcdefghijklmnopqrstuuNuFeqOGteHTkuuZPpnVGyHg/DXM/Mw."
)

// With accounts, every path asks for the password, and there is no token.
func TestUI_Basic(t *testing.T) {
	t.Parallel()
	dir, _, q := newFile(t)
	v := serveUIWith(t, dir, []string{accountsVariable + "=\nbob:" + hashOfGrosse + "\n\n"}, "--listen", ":0", "--write", "--basic", "ann:"+hashOfSecret+"\n")
	require.Empty(t, v.at.RawQuery)
	v.at.Host = "127.0.0.1:" + v.at.Port() // it listens on all addresses
	v.host = "ops.example.com"
	answer, err := v.client.Get(v.at.String())
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Equal(t, http.StatusUnauthorized, answer.StatusCode)
	require.Equal(t, `Basic realm="honker", charset="UTF-8"`, answer.Header.Get("WWW-Authenticate"))
	require.Equal(t, "no-store", answer.Header.Get("Cache-Control"))

	v.basic = url.UserPassword("ann", "secret")
	style := stylesheet(t, v.sees(http.StatusOK, "/"))
	v.sees(http.StatusOK, style)
	v.basic = url.UserPassword("bob", "größe:x")
	v.sees(http.StatusOK, "/")
	for _, wrong := range []*url.Userinfo{
		nil, url.UserPassword("ann", "größe:x"), url.UserPassword("ann", ""), url.UserPassword("eve", "secret"), url.UserPassword("", ""),
		url.UserPassword("ann", hashOfSecret), url.UserPassword("ann", "secret2"), url.UserPassword("ANN", "secret"),
	} {
		v.basic = wrong
		for _, path := range []string{"/", "/events", "/job?id=1", "/export", "/none", style} {
			require.Equal(t, "A name and a password are required.\n", v.sees(http.StatusUnauthorized, path), path)
		}
		status, _ := v.ask("/pause", url.Values{"queue": {q.Name()}})
		require.Equal(t, http.StatusUnauthorized, status)
	}
	v.basic = url.UserPassword("bob", "größe:x")
	status, page := v.ask("/pause", url.Values{"queue": {q.Name()}})
	require.Equal(t, http.StatusOK, status, page)
	stats, err := q.Stats(t.Context())
	require.NoError(t, err)
	require.Equal(t, "bob", stats.Pause.By)
}

// Without a proxy, a page from another site is rejected because of its Host header even with a valid password. Behind
// a proxy, the Host isn't checked.
func TestUI_Basic_Host(t *testing.T) {
	t.Parallel()
	dir, _, _ := newFile(t)
	v := serveUI(t, dir, "--basic", "ann:"+hashOfSecret)
	v.basic = url.UserPassword("ann", "secret")
	v.sees(http.StatusOK, "/")
	v.host = "evil.example"
	v.sees(http.StatusForbidden, "/")

	v = serveUI(t, dir, "--i-have-a-proxy")
	v.host = "ops.example.com"
	v.sees(http.StatusOK, "/")
}

// stylesheet returns the path of the page's own style sheet.
func stylesheet(t *testing.T, page string) string {
	t.Helper()
	_, rest, found := strings.Cut(page, `rel="stylesheet" href="`)
	require.True(t, found, page)
	path, _, _ := strings.Cut(rest, `"`)
	return "/" + path
}

// A correct password is hashed only on first use. A failed login is hashed every time, even for an unknown name, and
// never concurrently with another login.
func TestAccounts_HashOnce(t *testing.T) {
	t.Parallel()
	s, err := (&app{console: console{getenv: func(string) string { return "" }}}).accounts([]string{"ann:" + hashOfSecret, "bob:" + hashOfGrosse})
	require.NoError(t, err)
	hashed := 0 // guarded by the turn
	s.compare = func(hash, password []byte) error {
		hashed++
		return bcrypt.CompareHashAndPassword(hash, password)
	}
	allow := func(r *http.Request) bool { return s.check(r) == nil }
	request := func(name, password string) *http.Request {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.SetBasicAuth(name, password)
		return r
	}
	require.False(t, allow(httptest.NewRequest(http.MethodGet, "/", nil)))
	require.Zero(t, hashed)
	var all sync.WaitGroup
	for range loginsPerName {
		all.Go(func() {
			for range 100 {
				if !allow(request("ann", "secret")) || !allow(request("bob", "größe:x")) {
					t.Error("it was refused")
				}
			}
		})
	}
	all.Wait()
	require.Equal(t, 2, hashed, "once for each")
	for range 2 {
		require.False(t, allow(request("ann", "wrong")))
		require.False(t, allow(request("eve", "secret")))
		require.False(t, allow(request("bob", "secret")))
	}
	require.Equal(t, 8, hashed)
	require.True(t, allow(request("ann", "secret")))
	require.Equal(t, 8, hashed, "what is wrong takes nothing from what was right")

	require.NoError(t, s.turns.take(t.Context(), netip.Prefix{}, [32]byte{})) // stands in for another request that is being hashed
	require.True(t, allow(request("ann", "secret")))
	gone := request("ann", "wrong")
	ctx, leave := context.WithCancel(t.Context())
	leave()
	require.ErrorIs(t, s.check(gone.WithContext(ctx)), context.Canceled, "the client has gone")
	require.Empty(t, s.turns.lines)
}

// hashOfCost returns a hash with the given cost.
func hashOfCost(cost string) string { return "$2y$" + cost + hashOfSecret[6:] }

// A hash with a high cost would hold up all logins, and hashes with different costs would reveal through response
// times which names exist. Both are rejected at startup.
func TestAccounts_Cost(t *testing.T) {
	t.Parallel()
	start := func(env string, given ...string) error {
		_, err := (&app{console: console{getenv: func(string) string { return env }}}).accounts(given)
		return err
	}
	require.NoError(t, start("", "ann:"+hashOfCost("14"), "bob:"+hashOfCost("14")))
	for _, cost := range []string{"15", "20", "31"} {
		require.ErrorContains(t, start("", "ann:"+hashOfCost(cost)), "a bcrypt cost of "+cost+"; the maximum is 14")
		require.ErrorContains(t, start("ann:"+hashOfCost(cost)), "a bcrypt cost of "+cost+"; the maximum is 14")
	}
	for _, err := range []error{
		start("", "ann:"+hashOfCost("10"), "bob:"+hashOfCost("12")),
		start("ann:"+hashOfCost("10"), "bob:"+hashOfCost("12")),
		start("ann:" + hashOfCost("10") + "\nbob:" + hashOfCost("12")),
	} {
		require.ErrorContains(t, err, "a bcrypt cost of 12, but another account has 10")
		var coded *coded
		require.ErrorAs(t, err, &coded)
		require.Equal(t, codeUsage, coded.code)
		require.NotContains(t, err.Error()+coded.try, "bob")
	}
}

// Only bcrypt hashes are accepted. Error messages never repeat the argument, which may be a password.
func TestAccounts_Refused(t *testing.T) {
	t.Parallel()
	for _, given := range []string{
		"", "secret", ":secret", "secret:", ":" + hashOfSecret, "ann:secret", "ann:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=", "ann:$apr1$secret$Y3VYsyVNtRQtSFZKnMzQ00",
		"ann:$6$secret$" + strings.Repeat("a", 86), "ann:$argon2id$v=19$m=65536,t=3,p=4$secret", "ann:" + hashOfSecret[:59], "ann:" + hashOfSecret + "x", "ann:$2y$99" + hashOfSecret[6:],
		"ann:$2x" + hashOfSecret[3:], "ann:" + strings.Replace(hashOfSecret, "abc", "a!c", 1), "ann:bob:" + hashOfSecret,
	} {
		for _, env := range []bool{false, true} {
			lines, variable := []string{given}, ""
			if env {
				lines, variable = nil, "ann:"+hashOfSecret+"\n"+given
			}
			s, err := (&app{console: console{getenv: func(string) string { return variable }}}).accounts(lines)
			if env && given == "" {
				require.NoError(t, err)
				require.Len(t, s.all, 1)
				continue
			}
			var coded *coded
			require.ErrorAs(t, err, &coded, given)
			require.Equal(t, codeUsage, coded.code)
			require.NotContains(t, err.Error()+coded.try, "secret")
			require.NotContains(t, err.Error()+coded.try, "ann")
		}
	}
}
