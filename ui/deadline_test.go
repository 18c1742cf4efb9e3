package ui_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/ui"
)

// slowReader is a ResponseWriter that records the read deadlines of its request.
type slowReader struct {
	*httptest.ResponseRecorder
	until []time.Time
}

func (s *slowReader) SetReadDeadline(t time.Time) error {
	s.until = append(s.until, t)
	return nil
}

// Reading a form's body has a deadline, whatever the server's settings. The deadline is cleared for the verb that
// follows, but not for a refused request. Pages and streams have no body and no deadline.
func TestHandler_BodyInTime(t *testing.T) {
	honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
		bounded := time.Now().Add(10 * time.Second)
		send := func(h http.Handler, method, target, form string) *slowReader {
			r := httptest.NewRequest(method, target, strings.NewReader(form))
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			r.Header.Set("Sec-Fetch-Site", "same-origin")
			w := &slowReader{ResponseRecorder: httptest.NewRecorder()}
			h.ServeHTTP(w, r)
			return w
		}
		h := dashboard(t, db, nil)
		w := send(h, http.MethodPost, "/pause", "queue=mails")
		require.Equal(t, http.StatusSeeOther, w.Code)
		require.Equal(t, []time.Time{bounded, {}}, w.until)
		for _, target := range []string{"/", "/jobs", "/nothing"} {
			require.Empty(t, send(h, http.MethodGet, target, "").until, target)
		}
		closed := dashboard(t, db, &ui.Options{Authorize: func(*http.Request, ui.Access) error { return errors.New("no") }})
		require.Equal(t, bounded, send(closed, http.MethodPost, "/pause", "queue=mails").until[0])
		for _, target := range []string{"/", "/nothing", "/check/x"} {
			require.Equal(t, []time.Time{bounded}, send(h, http.MethodPost, target, "x").until, target)
		}
	})
}
