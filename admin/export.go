package admin

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"time"
	"unicode/utf8"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
)

// line is a job as a line of JSON, but for its payload. The guide docs/guide/dead-letters.md describes it.
type line struct {
	ID          int64             `json:"id,omitempty"`
	Queue       string            `json:"queue,omitempty"`
	State       honker.State      `json:"state,omitempty"`
	Priority    int64             `json:"priority,omitempty"`
	Attempts    int               `json:"attempts,omitempty"`
	MaxAttempts int               `json:"max_attempts,omitempty"`
	Worker      string            `json:"worker_id,omitempty"`
	LastError   string            `json:"last_error,omitempty"`
	Unique      string            `json:"unique,omitempty"`
	Key         string            `json:"key,omitempty"`
	Headers     map[string]string `json:"headers,omitempty"`
	CreatedAt   time.Time         `json:"created_at,omitzero"`
	RunAt       time.Time         `json:"run_at,omitzero"`
	ExpiresAt   time.Time         `json:"expires_at,omitzero"`
	DiedAt      time.Time         `json:"died_at,omitzero"`
	DoneAt      time.Time         `json:"done_at,omitzero"`

	// One of these: JSON of one line, other text, and what is no text.
	Payload json.RawMessage `json:"payload,omitempty"`
	Text    *string         `json:"payload_text,omitempty"`
	Base64  *string         `json:"payload_base64,omitempty"`
}

// exportPage bounds the jobs that are in memory at a time.
const exportPage = 200

// ExportJobs writes the jobs that f picks to w, live, dead and done ones, the oldest first: a line of JSON each, with
// the payload as it is stored. It returns how many it has written, also with an error, which is that of a
// read, of w, or of ctx. The zero filter picks all.
//
// It reads as [EachJob] does, some jobs at a time, and holds up no writer, nor the log of the file, however slow w is.
// What changes meanwhile may be written twice or not at all; dead and done jobs, which stay as they are, are written
// once. What a job waits for, and its batch, are not in its line, since ids are those of this file; nor are its attempts, progress and
// checkpoint. [ImportJobs] reads the lines: a job that waited for others runs there without them.
func ExportJobs(ctx context.Context, db *honker.DB, f JobFilter, w io.Writer) (n int64, err error) {
	if w == nil {
		return 0, engine.Wrap("export jobs", "", fmt.Errorf("%w: nil io.Writer", honker.ErrInvalid))
	}
	out := bufio.NewWriter(w)
	for job, err := range EachJob(ctx, db, f, &PageOptions{Order: OldestFirst, Limit: exportPage}) {
		if err != nil {
			_ = out.Flush() // the lines so far are whole
			return n, engine.Wrap("export jobs", "", err)
		}
		text, err := lineOf(job)
		if err != nil {
			return n, engine.Wrap("export jobs", "", fmt.Errorf("job %d: %w", job.ID, err))
		}
		if _, err := out.Write(text); err != nil {
			return n, engine.Wrap("export jobs", "", err)
		}
		n++
	}
	return n, engine.Wrap("export jobs", "", out.Flush())
}

// lineOf is the line of a job, with its end. encoding/json would write the payload anew, so it is put in as
// it is.
func lineOf(j *honker.JobInfo) ([]byte, error) {
	l := line{
		ID: j.ID, Queue: j.Queue, State: j.State, Priority: int64(j.Priority), Attempts: j.Attempts, MaxAttempts: j.MaxAttempts,
		Worker: j.WorkerID, LastError: j.LastError, Unique: j.Unique, Key: j.Key, Headers: j.Headers,
		CreatedAt: utc(j.CreatedAt), RunAt: utc(j.RunAt), ExpiresAt: utc(j.ExpiresAt), DiedAt: utc(j.DiedAt), DoneAt: utc(j.DoneAt),
	}
	raw := oneLine(j.Payload)
	switch {
	case raw:
	case utf8.Valid(j.Payload):
		l.Text = new(string(j.Payload))
	default:
		l.Base64 = new(base64.StdEncoding.EncodeToString(j.Payload))
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(l); err != nil || !raw {
		return b.Bytes(), err
	}
	b.Truncate(b.Len() - len("}\n"))
	b.WriteString(`,"payload":`)
	b.Write(j.Payload)
	b.WriteString("}\n")
	return b.Bytes(), nil
}

// oneLine reports that a payload is JSON text that can stand in a line as it is.
func oneLine(p json.RawMessage) bool {
	return json.Valid(p) && utf8.Valid(p) && !bytes.ContainsAny(p, "\r\n") && len(bytes.TrimSpace(p)) == len(p)
}

// utc keeps the zero time, which is left out.
func utc(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.UTC()
}
