package ui_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/ui"
)

// The search field leads to the job with the ID, to the queue with the name, to the queues whose names contain the
// text, or else to the jobs whose arguments contain it. Hidden arguments are not searched.
func TestFind_Targets(t *testing.T) {
	db, h := open(t, nil)
	enqueue(t, db)
	for text, want := range map[string]string{
		"1": "job?id=1", "%20%2342": "job?id=42", "mails": "queue?name=mails", "ail": "queues?q=ail", "ann%40example": "jobs?contains=ann%40example", "": "jobs", "-1": "jobs?contains=-1",
	} {
		w := get(h, "/find?text="+text)
		require.Equal(t, http.StatusSeeOther, w.Code, text)
		require.Equal(t, want, w.Header().Get("Location"), text)
	}
	redacts := dashboard(t, db, &ui.Options{Authorize: ui.AllowAll, Redact: func(string, json.RawMessage) json.RawMessage { return nil }})
	require.Equal(t, "queues?q=ann", get(redacts, "/find?text=ann").Header().Get("Location"))
}
