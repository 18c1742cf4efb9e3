package admin

import (
	"bufio"
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
)

// Any input is either accepted as jobs that Enqueue would accept, or rejected with a line number. Each
// accepted job is exported as a line that imports as the same job.
func FuzzImportLines(f *testing.F) {
	f.Add(`{"queue":"a","payload":{"n": 1}}` + "\n" + `{"queue":"b","state":"dead","payload_text":"x","unique":"k","headers":{"a":"b"}}`)
	f.Add(`{"queue":"a","payload_base64":"/w==","run_at":"2030-01-01T00:00:00Z","expires_at":"0001-01-01T00:00:01Z","priority":-9223372036854775808}`)
	f.Add("\n\n{}")
	f.Add(`{"queue":"a","payload": "` + "\u2028" + `" }` + "\r\n")
	e := &engine.Engine{Config: engine.Config{MaxPayload: 64}}
	f.Fuzz(func(t *testing.T, lines string) {
		i := &importer{engine: e, lines: bufio.NewReader(strings.NewReader(lines)), report: new(Report)}
		for !i.ended {
			some, err := i.next(t.Context(), 2)
			if err != nil {
				if !errors.Is(err, honker.ErrInvalid) || !strings.HasPrefix(err.Error(), "line ") {
					t.Fatal(err)
				}
				return
			}
			for _, j := range some {
				requireSame(t, i, j)
			}
		}
	})
}

func requireSame(t *testing.T, i *importer, j importing) {
	if engine.CheckName("queue name", j.Queue) != nil || len(j.payload) > 64 || j.MaxAttempts < 0 {
		t.Fatalf("%+v", j)
	}
	text, err := lineOf(&honker.JobInfo{ID: j.ID, Queue: j.Queue, State: j.State, Payload: []byte(j.payload), Priority: int(j.Priority),
		MaxAttempts: j.MaxAttempts, Unique: j.Unique, Headers: j.Headers})
	if err != nil || strings.Count(string(text), "\n") != 1 {
		t.Fatalf("%q: %v", text, err)
	}
	again, err := i.parse([]byte(strings.TrimSuffix(string(text), "\n")))
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	if !maps.Equal(again.Headers, j.Headers) {
		t.Fatalf("%q: %+v", text, again)
	}
	if again.payload != j.payload || again.Queue != j.Queue || again.Priority != j.Priority || again.MaxAttempts != j.MaxAttempts || again.Unique != j.Unique {
		t.Fatalf("%q: %+v", text, again)
	}
}
