package ui_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var links = regexp.MustCompile(`(?:href|src|action)="([^"]*)"`)

// Pages work under any prefix, with and without http.StripPrefix.
func TestHandler_Prefixes(t *testing.T) {
	_, h := open(t, nil)
	mux := http.NewServeMux()
	mux.Handle("/plain/", h)
	mux.Handle("/stripped/", http.StripPrefix("/stripped", h))
	mux.Handle("/bare", http.StripPrefix("/bare", h)) // a pattern without a trailing slash
	mux.Handle("/bare/", http.StripPrefix("/bare", h))
	mux.Handle("/", h) // as behind a proxy that strips the prefix
	server := httptest.NewServer(mux)
	defer server.Close()
	defer http.DefaultClient.CloseIdleConnections()
	for _, prefix := range []string{"/plain/", "/stripped/", "/bare", "/bare/", "/"} {
		page, body := fetch(t, server.URL+prefix)
		require.True(t, strings.HasSuffix(page.Path, "/"), page)
		found := 0
		for _, m := range links.FindAllStringSubmatch(body, -1) {
			require.NotContains(t, m[1], "//", "a link to elsewhere")
			require.False(t, strings.HasPrefix(m[1], "/"), "%s: %s is not relative", prefix, m[1])
			if strings.HasPrefix(m[1], "#") || m[1] == "events" {
				continue
			}
			target, err := page.Parse(unescape(m[1]))
			require.NoError(t, err)
			fetch(t, target.String())
			found++
		}
		require.Greater(t, found, 5)
	}
}

func fetch(t *testing.T, target string) (*url.URL, string) {
	t.Helper()
	response, err := http.Get(target)
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, response.StatusCode, target)
	return response.Request.URL, string(body)
}

// All responses have headers that keep the browser from running or embedding third-party content.
func TestHandler_Headers(t *testing.T) {
	_, h := open(t, nil)
	style := regexp.MustCompile(`style-\w+\.css`).FindString(get(h, "/").Body.String())
	for _, target := range []string{"/", "/nothing", "/?from=x", "/" + style} {
		head := get(h, target).Header()
		require.Contains(t, head.Get("Content-Security-Policy"), "default-src 'none'", target)
		require.NotContains(t, head.Get("Content-Security-Policy"), "unsafe", target)
		require.Equal(t, "nosniff", head.Get("X-Content-Type-Options"), target)
		require.Equal(t, "no-referrer", head.Get("Referrer-Policy"), target)
		if target == "/"+style {
			require.Contains(t, head.Get("Cache-Control"), "immutable")
			continue
		}
		require.Equal(t, "no-store", head.Get("Cache-Control"), target)
	}
	body := get(h, "/").Body.String()
	require.NotContains(t, body, "<style")
	require.NotContains(t, body, " style=")
	require.NotRegexp(t, `<script[^>]*>[^<]`, body, "an inline script")
	require.NotRegexp(t, `\son\w+=`, body, "an inline handler")
}

// The dashboard's pages and assets are small.
func TestHandler_Assets(t *testing.T) {
	_, h := open(t, nil)
	sum := 0
	names := regexp.MustCompile(`[a-z]+-[0-9a-f]{10}\.\w+`).FindAllString(get(h, "/").Body.String(), -1)
	require.Len(t, names, 4)
	for _, name := range names {
		plain, zipped := get(h, "/"+name), get(h, "/"+name, "Accept-Encoding", "gzip, br")
		require.Equal(t, "gzip", zipped.Header().Get("Content-Encoding"))
		require.Empty(t, plain.Header().Get("Content-Encoding"))
		sum += plain.Body.Len()
	}
	require.Less(t, sum, 150<<10)
	require.Equal(t, http.StatusMethodNotAllowed, post(h, "/"+names[0]).Code)
}
