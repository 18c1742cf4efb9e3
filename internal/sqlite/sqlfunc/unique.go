package sqlfunc

import (
	"database/sql/driver"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/jobs"
	"github.com/honker-go/honker/internal/sqlite/store/rows"
)

// enqueueOptions holds the options of honkerx_enqueue. Durations are in seconds; those for unique keys may be
// fractional.
type enqueueOptions struct {
	Delay       *int64 `json:"delay"`
	RunAt       *int64 `json:"run_at"`
	Priority    int64  `json:"priority"`
	MaxAttempts *int64 `json:"max_attempts"`
	Expires     *int64 `json:"expires"`

	Unique     *string   `json:"unique"`
	UniqueArgs *[]string `json:"unique_args"`
	Until      string    `json:"until"`
	For        float64   `json:"for"`
	Conflict   string    `json:"conflict"`
	Wait       float64   `json:"wait"`
	Max        float64   `json:"max"`
}

var conflicts = map[string]row.Conflict{"": row.KeepExisting, "keep": row.KeepExisting, "replace": row.ReplaceWaiting, "again": row.RunAgain}

// enqueueWith enqueues a job with any of the Go API's options. It is meant for applications' triggers.
func enqueueWith(c call) (driver.Value, error) {
	o := enqueueOptions{}
	if c.given(2) {
		dec := json.NewDecoder(strings.NewReader(c.text(2)))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&o); err != nil || dec.More() {
			return nil, fmt.Errorf("%w: options %q: %w", engine.ErrInvalid, c.text(2), err)
		}
	}
	job := o.job(c)
	if o.Unique == nil && o.UniqueArgs == nil {
		if o.Until != "" || o.For != 0 || o.Conflict != "" || o.Wait != 0 || o.Max != 0 {
			return nil, fmt.Errorf("%w: until, for, conflict, wait and max require unique or unique_args", engine.ErrInvalid)
		}
		return result(jobs.Jobs{}.InsertOne(c.ctx, c.q, job, c.text(1)))
	}
	u, err := o.unique(c)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", engine.ErrInvalid, err)
	}
	if o.Wait > 0 {
		job.RunAt = (u.NowMS + milliseconds(o.Wait) + 999) / 1000
	}
	p, err := jobs.Jobs{}.InsertUnique(c.ctx, c.q, job, c.text(1), u)
	return result(p.ID, err)
}

// job prefers delay to run_at if both are given, as honker_enqueue does.
func (o enqueueOptions) job(c call) jobs.NewJob {
	job := jobs.NewJob{Queue: c.text(0), Priority: o.Priority, RunAt: c.now(), MaxAttempts: defaultAttempts, CreatedAt: c.now()}
	switch {
	case o.Delay != nil:
		job.RunAt = c.in(*o.Delay)
	case o.RunAt != nil:
		job.RunAt = *o.RunAt
	}
	if o.MaxAttempts != nil {
		job.MaxAttempts = *o.MaxAttempts
	}
	if o.Expires != nil {
		job.ExpiresAt = rows.ExpiryIn(c.now(), *o.Expires)
	}
	return job
}

// unique validates and returns the unique key options.
func (o enqueueOptions) unique(c call) (u jobs.Unique, err error) {
	if u.Key, err = o.key(c.text(1)); err != nil {
		return u, err
	}
	conflict, known := conflicts[o.Conflict]
	switch {
	case !known:
		return u, fmt.Errorf("unknown conflict %q", o.Conflict)
	case o.Until != "" && o.Until != "finished" && o.Until != "started":
		return u, fmt.Errorf("unknown until %q", o.Until)
	case o.For < 0 || o.Wait < 0 || o.Max < 0:
		return u, fmt.Errorf("for, wait and max must not be negative")
	}
	u.Started, u.Conflict, u.NowMS = o.Until == "started", conflict, c.time.UnixMilli()
	if o.For > 0 {
		u.UntilMS = u.NowMS + milliseconds(o.For)
	}
	if o.Wait == 0 && o.Max == 0 {
		return u, nil
	}
	switch {
	case o.Wait == 0 || o.Max < o.Wait:
		return u, fmt.Errorf("wait %v must be positive, and max %v must not be less than wait", o.Wait, o.Max)
	case o.Delay != nil || o.RunAt != nil:
		return u, fmt.Errorf("wait cannot be combined with delay or run_at")
	case o.Until == "finished" || o.Conflict != "" && conflict != row.ReplaceWaiting:
		return u, fmt.Errorf("wait requires until started and conflict replace")
	}
	u.Started, u.Conflict, u.MaxMS = true, row.ReplaceWaiting, milliseconds(o.Max)
	return u, nil
}

// maxKey is the maximum length of a key in bytes.
const maxKey = 1024

func (o enqueueOptions) key(payload string) (string, error) {
	switch {
	case o.Unique == nil:
		return engine.ArgsKey(payload, *o.UniqueArgs)
	case o.UniqueArgs != nil:
		return "", fmt.Errorf("unique cannot be combined with unique_args")
	case *o.Unique == "" || len(*o.Unique) > maxKey || strings.ContainsRune(*o.Unique, 0):
		return "", fmt.Errorf("a unique key must have 1 to %d bytes and must not contain NUL", maxKey)
	}
	return *o.Unique, nil
}

// milliseconds rounds a duration up to milliseconds and limits it to the column's range.
func milliseconds(seconds float64) int64 {
	return int64(math.Min(math.Ceil(seconds*1000), float64(math.MaxInt64/4/int64(time.Millisecond))))
}
