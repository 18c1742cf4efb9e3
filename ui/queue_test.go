package ui_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/honkertest"
)

// A queue's page shows how many attempts the jobs have spent that wait for another one, and the kinds of their errors.
func TestQueue_Attempts(t *testing.T) {
	db := honkertest.Open(t, nil)
	h := dashboard(t, db, nil)
	q := queue(db, "mails")
	require.NotContains(t, get(h, "/queue?name=mails").Body.String(), "Attempts spent")
	_, err := q.EnqueueMany(t.Context(), []json.RawMessage{json.RawMessage("1"), json.RawMessage("2"), json.RawMessage("3")})
	require.NoError(t, err)
	jobs, err := q.Claim(t.Context(), "w", 3)
	require.NoError(t, err)
	for _, j := range jobs {
		require.NoError(t, j.Retry(t.Context(), time.Hour, errors.New("no route to host")))
	}
	w := get(h, "/queue?name=mails")
	require.Equal(t, http.StatusOK, w.Code)
	require.Contains(t, w.Body.String(), "Attempts spent by waiting jobs")
	require.Contains(t, w.Body.String(), "attempts 1: 3")
	require.Contains(t, w.Body.String(), "3 wait for another attempt")
}
