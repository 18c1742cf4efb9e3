package ui_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/testkit"
)

// A queue's page shows how many places cancelled jobs still occupy, in the queue and for each key.
func TestQueue_CancelledPlaces(t *testing.T) {
	db, h := open(t, nil)
	q := honker.NewQueue[int](db, "mails", nil)
	require.NoError(t, q.SetLimits(t.Context(), honker.Limits{PerKey: 1}))
	id := testkit.Enqueue(t, q, 1, honker.Key("acme"))
	testkit.ClaimOne(t, q)
	_, err := q.Cancel(t.Context(), id)
	require.NoError(t, err)
	w := get(h, "/queue?name=mails")
	require.Equal(t, http.StatusOK, w.Code)
	require.Contains(t, w.Body.String(), "until their handlers have returned: 1.")
	require.Contains(t, w.Body.String(), "&#43;1 cancelled")
}
