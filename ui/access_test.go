package ui_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/ui"
)

// With an empty password, all requests are refused. A wrong password makes the browser ask again.
func TestBasic(t *testing.T) {
	request := func(user, password string) *http.Request {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.SetBasicAuth(user, password)
		return r
	}
	allow := ui.Basic("ops", "secret")
	require.NoError(t, allow(request("ops", "secret"), ui.Access{}))
	require.ErrorIs(t, allow(request("ops", "secre"), ui.Access{}), ui.ErrLogin)
	require.ErrorIs(t, allow(request("op", "secret"), ui.Access{}), ui.ErrLogin)
	require.ErrorIs(t, allow(httptest.NewRequest(http.MethodGet, "/", nil), ui.Access{}), ui.ErrLogin)
	require.Error(t, ui.Basic("", "")(request("", ""), ui.Access{}))

	_, h := open(t, &ui.Options{Authorize: allow})
	w := get(h, "/")
	require.Equal(t, http.StatusUnauthorized, w.Code)
	require.Contains(t, w.Header().Get("WWW-Authenticate"), "Basic")
	w = httptest.NewRecorder()
	h.ServeHTTP(w, request("ops", "secret"))
	require.Equal(t, http.StatusOK, w.Code)
}

// Without Authorize, every page only explains how to set it.
func TestHandler_ClosedByDefault(t *testing.T) {
	db, _ := open(t, nil)
	h := dashboard(t, db, &ui.Options{})
	w := get(h, "/")
	require.Equal(t, http.StatusForbidden, w.Code)
	require.Contains(t, w.Body.String(), "ui.Basic(user, password)")
	w = httptest.NewRecorder()
	ui.New(db, nil).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	require.Equal(t, http.StatusForbidden, w.Code)
}

// Authorize's error text is shown, and the response has no WWW-Authenticate header.
func TestHandler_Refused(t *testing.T) {
	_, h := open(t, &ui.Options{Authorize: func(*http.Request, ui.Access) error { return errors.New("ask <b>Ann</b>") }})
	w := get(h, "/")
	require.Equal(t, http.StatusForbidden, w.Code)
	require.Contains(t, w.Body.String(), "ask &lt;b&gt;Ann&lt;/b&gt;")
	require.Empty(t, w.Header().Get("WWW-Authenticate"))
}

// Behind a proxy that rewrites the Host header, a request without Sec-Fetch-Site is accepted only if its origin is
// in Options.Origins. The error page names the missing origin.
func TestHandler_Origins(t *testing.T) {
	db, h := open(t, nil)
	form := map[string][]string{"queue": {"mails"}}
	from := []string{"Sec-Fetch-Site", "", "Origin", "https://ops.example.com"}
	w := ask(h, http.MethodPost, "/pause", form, from...)
	require.Equal(t, http.StatusForbidden, w.Code)
	require.Contains(t, w.Body.String(), "https://ops.example.com")
	require.Contains(t, w.Body.String(), "Origins")
	named := dashboard(t, db, &ui.Options{Authorize: ui.AllowAll, Origins: []string{"https://ops.example.com", "no origin"}})
	require.Equal(t, http.StatusSeeOther, ask(named, http.MethodPost, "/pause", form, from...).Code)
	require.Equal(t, http.StatusForbidden, ask(named, http.MethodPost, "/pause", form, "Sec-Fetch-Site", "", "Origin", "https://evil.example").Code)
}

// A handler with a nil DB responds with an error and does not panic.
func TestHandler_NoDB(t *testing.T) {
	h := dashboard(t, nil, nil)
	w := get(h, "/")
	require.Equal(t, http.StatusInternalServerError, w.Code)
	require.Contains(t, w.Body.String(), "nil DB")
}
