package admin

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/wake"
	"github.com/honker-go/honker/observe"
)

// ImportOptions configures ImportJobs. The zero value of a field selects its default.
type ImportOptions struct {
	To       string        // queue for all jobs; defaults to the queue in each line
	Delay    time.Duration // delay before formerly dead jobs can run
	Attempts int           // maximum attempts for each job; defaults to max_attempts in each line
	Skip     int64         // number of lines to skip; to resume a failed import, the number of completed lines
	DryRun   bool          // read all lines without enqueuing jobs
}

// importAttempts is the maximum number of attempts if neither Attempts nor the line sets it.
const importAttempts = 25

func (o *ImportOptions) withDefaults() (ImportOptions, error) {
	var out ImportOptions
	if o != nil {
		out = *o
	}
	err := engine.NotNegative("Delay", out.Delay)
	if out.To != "" {
		err = errors.Join(err, engine.CheckName("queue name", out.To))
	}
	if out.Attempts < 0 || out.Attempts > math.MaxInt32 {
		err = errors.Join(err, fmt.Errorf("%w: Attempts must be 0 to %d, but is %d", honker.ErrInvalid, math.MaxInt32, out.Attempts))
	}
	if out.Skip < 0 {
		err = errors.Join(err, fmt.Errorf("%w: Skip must not be negative, but is %d", honker.ErrInvalid, out.Skip))
	}
	return out, err
}

// ImportJobs enqueues the jobs in r, which must be JSON Lines as written by [ExportJobs] or another
// program. Each line must have a payload, and a queue unless opts.To is set. Imported jobs are new jobs:
// they get new IDs and have used no attempts. A job with a run time in the future is not run before that
// time. Unique keys, limit keys and headers are preserved.
//
// Payloads are stored exactly as in the lines, without applying the DB's [honker.Codec]. Only the payload
// of a job that moves from another queue to opts.To is re-encoded. Importing the same lines twice into
// another file creates the jobs twice.
//
// ImportJobs skips done jobs, jobs that still exist in this file, and jobs whose unique key is taken.
//
// ImportJobs blocks until the end of r. It reads a few lines at a time and enqueues them in transactions of
// a few milliseconds. If a line is malformed or has an unknown field, ImportJobs returns
// [honker.ErrInvalid]. The error contains the line numbers of the failed line and the last imported line.
// To resume the import, set Skip to the latter. If ctx is done, the import stops in the same way, but a
// blocked Read is not interrupted. Report.Matched is the number of lines with jobs. A nil opts selects the
// defaults.
func ImportJobs(ctx context.Context, db *honker.DB, r io.Reader, opts *ImportOptions) (*Report, error) {
	e, err := engineOf(db)
	o, bad := opts.withDefaults()
	if r == nil {
		bad = errors.Join(bad, fmt.Errorf("%w: nil io.Reader", honker.ErrInvalid))
	}
	if err := errors.Join(err, bad, engine.CheckContext(ctx)); err != nil {
		return new(Report), engine.Wrap("import jobs", "", err)
	}
	i := &importer{ImportOptions: o, engine: e, lines: bufio.NewReaderSize(r, 64<<10), report: new(Report)}
	target := ""
	if o.To != "" {
		target = engine.AuditTarget("queue", o.To)
	}
	i.audit = e.NewAudit(ctx, "import jobs", target)
	return i.report, engine.Wrap("import jobs", "", i.run(ctx))
}

// importer is the state of a running ImportJobs.
type importer struct {
	ImportOptions
	engine *engine.Engine
	lines  *bufio.Reader
	read   int64 // lines read
	done   int64 // lines covered by the last commit
	ended  bool
	report *Report
	audit  *engine.Audit
}

// importing is a job to be imported.
type importing struct {
	line
	number  int64
	payload string // payload in the line
	stored  string // payload to store
	headers string
}

// importBytes limits the total size of the payloads in a transaction.
const importBytes = 1 << 20

func (i *importer) run(ctx context.Context) error {
	if err := errors.Join(i.engine.Writable(), i.engine.RefuseInTx(ctx, "")); err != nil {
		return err
	}
	pace := i.engine.NewPace()
	for {
		if err := ctx.Err(); err != nil {
			return i.failed(engine.Cause(ctx))
		}
		some, err := i.next(ctx, min(pace.Size, chunkLimit))
		if err != nil {
			return i.failed(err)
		}
		if err := i.add(ctx, pace, some); err != nil {
			return i.failed(err)
		}
		i.done = i.read
		if i.ended {
			return nil
		}
		if i.DryRun || len(some) == 0 {
			continue
		}
		if err := pace.Rest(ctx); err != nil {
			return i.failed(err)
		}
	}
}

// failed adds the import's progress to an error.
func (i *importer) failed(err error) error {
	switch {
	case i.DryRun:
		return err
	case i.done == 0:
		return fmt.Errorf("%w; nothing was imported", err)
	}
	return fmt.Errorf("%w; lines up to %d were imported", err, i.done)
}

// next reads up to n jobs, or fewer if their payloads reach importBytes.
func (i *importer) next(ctx context.Context, n int) (some []importing, err error) {
	for size := 0; len(some) < n && size < importBytes; {
		text, err := i.line()
		if err == io.EOF {
			i.ended = true
			return some, nil
		}
		if err == nil && i.read > i.Skip && len(text) > 0 {
			var j importing
			if j, err = i.parse(text); err == nil {
				err = i.recode(ctx, &j)
			}
			j.number = i.read
			some, size = append(some, j), size+len(j.payload)
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", i.read, err)
		}
	}
	return some, nil
}

// line returns the next line without its newline. It returns io.EOF after the last line.
func (i *importer) line() (text []byte, err error) {
	most := 64<<10 + 6*i.engine.MaxPayload // a byte in a JSON string may be written as a six-byte escape
	for {
		part, err := i.lines.ReadSlice('\n')
		text = append(text, part...)
		switch {
		case err == io.EOF && len(text) == 0:
			return nil, io.EOF
		case err == nil || err == io.EOF:
			i.read++
			return bytes.TrimSpace(text), nil
		case err != bufio.ErrBufferFull:
			i.read++
			return nil, err
		case len(text) > most:
			i.read++
			return nil, fmt.Errorf("%w: the line has more than %d bytes", honker.ErrInvalid, most)
		}
	}
}

// parse decodes a line and validates the job as Enqueue would.
func (i *importer) parse(text []byte) (j importing, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&j.line); err != nil {
		return j, fmt.Errorf("%w: %w", honker.ErrInvalid, err)
	}
	if d.InputOffset() != int64(len(text)) {
		return j, fmt.Errorf("%w: the line has more than one JSON value", honker.ErrInvalid)
	}
	if j.payload, err = j.text(); err != nil {
		return j, fmt.Errorf("%w: %w", honker.ErrInvalid, err)
	}
	if len(j.payload) > i.engine.MaxPayload {
		return j, fmt.Errorf("%w: the payload has %d bytes, but Options.MaxPayload allows %d", honker.ErrInvalid, len(j.payload), i.engine.MaxPayload)
	}
	if j.MaxAttempts < 0 || j.MaxAttempts > math.MaxInt32 {
		return j, fmt.Errorf("%w: max_attempts must be 0 to %d, but is %d", honker.ErrInvalid, math.MaxInt32, j.MaxAttempts)
	}
	if j.Unique != "" {
		err = engine.CheckName("unique key", j.Unique)
	}
	if j.Key != "" {
		err = errors.Join(err, engine.CheckName("key", j.Key))
	}
	if i.To == "" || j.Queue != "" {
		err = errors.Join(err, engine.CheckName("queue name", j.Queue))
	}
	headers, bad := engine.EncodeHeaders(j.Headers)
	j.headers = headers
	return j, errors.Join(err, bad)
}

// recode re-encodes the payload if the job moves to another queue. If the line has no queue or the DB
// has no codec, the payload is stored unchanged.
func (i *importer) recode(ctx context.Context, j *importing) (err error) {
	j.stored = j.payload
	if j.Queue != "" && i.To != "" {
		j.stored, err = recode(ctx, i.engine, j.Queue, i.To, j.payload)
	}
	return err
}

// text returns the line's payload.
func (l *line) text() (string, error) {
	has := 0
	for _, set := range []bool{l.Payload != nil, l.Text != nil, l.Base64 != nil} {
		if set {
			has++
		}
	}
	switch {
	case has != 1:
		return "", fmt.Errorf("exactly one of payload, payload_text and payload_base64 must be set, but %d are", has)
	case l.Text != nil:
		return *l.Text, nil
	case l.Base64 != nil:
		b, err := base64.StdEncoding.DecodeString(*l.Base64)
		return string(b), err
	}
	return engine.Marshal(l.Payload)
}

// add enqueues jobs in a single transaction.
func (i *importer) add(ctx context.Context, pace *engine.Pace, some []importing) error {
	if i.DryRun || len(some) == 0 {
		i.report.Matched += int64(len(some))
		return nil
	}
	var after Report
	var added []row.Change
	var noted func()
	err := pace.Write(ctx, func(ctx context.Context, q engine.Querier, now time.Time) (err error) {
		after = *i.report // the transaction may be retried
		after.Skipped = slices.Clone(i.report.Skipped)
		added = nil
		for _, j := range some {
			id, why, err := i.addOne(ctx, q, j, now)
			switch {
			case err != nil:
				return fmt.Errorf("line %d: %w", j.number, err)
			case why != "":
				after.skip(j.ID, fmt.Sprintf("line %d: %s", j.number, why))
			default:
				added = append(added, row.Change{ID: id, Queue: i.queue(j)})
			}
		}
		after.Audit, noted, err = i.audit.Note(ctx, q, now, int64(len(added)))
		return err
	})
	if err != nil {
		return err
	}
	noted()
	after.Audit = max(after.Audit, i.report.Audit)
	after.Matched += int64(len(some))
	after.Changed += int64(len(added))
	*i.report = after
	queues, ids := byQueue(added)
	for _, queue := range queues {
		i.engine.Notifier.Wake(wake.Queue(queue))
		i.engine.Observer.Enqueued(observe.Enqueued{Queue: queue, IDs: ids[queue]})
	}
	return nil
}

// addOne enqueues a job. If it skips the job, it returns the reason.
func (i *importer) addOne(ctx context.Context, q engine.Querier, j importing, now time.Time) (id int64, why string, err error) {
	if j.State == honker.StateDone {
		return 0, "it was done", nil
	}
	if j.ID != 0 && !j.CreatedAt.IsZero() {
		where, err := i.engine.Stores.Operators.Same(ctx, q, j.ID, j.Queue, j.CreatedAt, j.payload)
		if err != nil || where != "" {
			return 0, "the job is in this file, " + where, err
		}
	}
	in := i.newJob(j, now)
	out, err := i.engine.Stores.Jobs.Insert(ctx, q, &in, now)
	if err != nil {
		return 0, "", err
	}
	id = out.IDs[0]
	if in.Unique != nil && out.Places[0].Result != row.PlacedNew {
		why = fmt.Sprintf("unique key %q is taken by job %d", j.Unique, id)
	}
	return id, why, nil
}

func (i *importer) queue(j importing) string {
	if i.To != "" {
		return i.To
	}
	return j.Queue
}

// newJob returns the parameters for inserting an imported job. The run time and expiry of a formerly
// dead job are ignored.
func (i *importer) newJob(j importing, now time.Time) row.Insert {
	in := row.Insert{
		Queue: i.queue(j), Payloads: []string{j.stored}, Priority: j.Priority, MaxAttempts: importAttempts,
		Delay: i.Delay, Key: j.Key, Headers: j.headers,
	}
	if j.Unique != "" {
		in.Unique = &row.Unique{Keys: []string{j.Unique}}
	}
	switch {
	case i.Attempts > 0:
		in.MaxAttempts = int64(i.Attempts)
	case j.MaxAttempts > 0:
		in.MaxAttempts = int64(j.MaxAttempts)
	}
	if j.State == honker.StateDead {
		return in
	}
	if !j.RunAt.IsZero() {
		in.Delay, in.RunAt = 0, time.Unix(engine.UnixUp(j.RunAt), 0)
	}
	in.ExpiresAt = j.ExpiresAt
	return in
}
