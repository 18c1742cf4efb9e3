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

// line is the JSON encoding of a job without its payload. The format is described in
// docs/guide/dead-letters.md.
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

	// Exactly one of the following is set: JSON on a single line, other UTF-8 text, or binary data.
	Payload json.RawMessage `json:"payload,omitempty"`
	Text    *string         `json:"payload_text,omitempty"`
	Base64  *string         `json:"payload_base64,omitempty"`
}

// exportPage limits the number of jobs held in memory.
const exportPage = 200

// ExportJobs writes the live, dead and done jobs that f selects to w as JSON Lines, oldest first. Payloads
// are written as stored. The zero filter selects all jobs. ExportJobs returns the number of jobs written,
// even if it returns an error.
//
// Jobs are read in pages as in [EachJob], so a slow w does not block the writer or log checkpoints. A live
// job that changes during the export may be written twice or not at all. Dead and done jobs do not change
// and are written once.
//
// [ImportJobs] reads the output. The output does not include dependencies and batches, because their IDs
// are meaningful only in this file. A job that waits for other jobs will therefore not wait for them after
// an import. Attempts, progress and checkpoints are also omitted.
func ExportJobs(ctx context.Context, db *honker.DB, f JobFilter, w io.Writer) (n int64, err error) {
	if w == nil {
		return 0, engine.Wrap("export jobs", "", fmt.Errorf("%w: nil io.Writer", honker.ErrInvalid))
	}
	out := bufio.NewWriter(w)
	for job, err := range EachJob(ctx, db, f, &PageOptions{Order: OldestFirst, Limit: exportPage}) {
		if err != nil {
			_ = out.Flush() // all lines in the buffer are complete
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

// lineOf encodes a job as a line that ends with a newline. It inserts the payload by hand because
// encoding/json would reformat it.
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

// oneLine reports whether a payload is JSON that can be embedded in a line unchanged.
func oneLine(p json.RawMessage) bool {
	return json.Valid(p) && utf8.Valid(p) && !bytes.ContainsAny(p, "\r\n") && len(bytes.TrimSpace(p)) == len(p)
}

// utc converts t to UTC. It returns the zero time unchanged so that omitzero omits it.
func utc(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.UTC()
}
