package admin

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/store"
)

// JobFilter picks jobs. Fields that are set must all match. The zero filter is ErrInvalid for a verb
// that changes jobs, unless All is set. Times are compared by whole seconds, since the file has no
// others; a Since is rounded up, a Before is not in the selection.
type JobFilter struct {
	Queues      []string          // any of these
	IDs         []int64           // any of these
	Unique      string            // the key of honker.Unique
	Worker      string            // that holds the job: live jobs only
	Error       string            // the error of the last attempt contains it
	Contains    string            // the payload, as stored, contains it
	Where       map[string]string // fields of the payload: {"order.id": "17"}; numbers as they are written
	Fingerprint string            // of the error, see DeadGroup: dead jobs only
	MinAttempts int

	CreatedSince, CreatedBefore time.Time
	RunSince, RunBefore         time.Time
	DiedSince, DiedBefore       time.Time // dead jobs only

	All bool // every job, where nothing else is set
}

// maxFilterIDs bounds the lists of a filter.
const maxFilterIDs = 10000

// selection is what the filter picks among live or dead jobs.
func (f *JobFilter) selection(dead bool) (store.JobSelect, error) {
	s := store.JobSelect{
		Dead: dead, Queues: f.Queues, IDs: f.IDs, Unique: f.Unique, Worker: f.Worker, Error: f.Error,
		Contains: f.Contains, MinAttempts: int64(f.MinAttempts),
		CreatedSince: since(f.CreatedSince), CreatedBefore: since(f.CreatedBefore),
		RunSince: since(f.RunSince), RunBefore: since(f.RunBefore),
		DiedSince: since(f.DiedSince), DiedBefore: since(f.DiedBefore),
	}
	if len(f.Where) > 0 {
		s.Where = make(map[string]string, len(f.Where))
	}
	for field, value := range f.Where {
		s.Where[jsonPath(field)] = value
	}
	return s, f.check(dead)
}

// since is the first second that is not before t; 0 for the zero time.
func since(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return engine.UnixUp(t)
}

// jsonPath turns "order.id" into $."order"."id", so that no name in it is an expression.
func jsonPath(field string) string {
	return `$."` + strings.ReplaceAll(field, ".", `"."`) + `"`
}

func (f *JobFilter) check(dead bool) error {
	var errs []error
	invalid := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: "+format, append([]any{honker.ErrInvalid}, args...)...))
	}
	if len(f.IDs) > maxFilterIDs || len(f.Queues) > maxFilterIDs {
		invalid("a filter of %d ids and %d queues, at most %d of each", len(f.IDs), len(f.Queues), maxFilterIDs)
	}
	for _, name := range f.Queues {
		errs = append(errs, engine.CheckName("queue name", name))
	}
	for field := range f.Where {
		if field == "" || strings.ContainsAny(field, "\"\\\x00") {
			invalid("field %q of a payload", field)
		}
	}
	if f.MinAttempts < 0 {
		invalid("negative MinAttempts %d", f.MinAttempts)
	}
	if dead && f.Worker != "" {
		invalid("Worker picks no dead job")
	}
	if !dead && (f.Fingerprint != "" || !f.DiedSince.IsZero() || !f.DiedBefore.IsZero()) {
		invalid("Fingerprint, DiedSince and DiedBefore pick no live job")
	}
	return errors.Join(errs...)
}

// empty reports that nothing but All is set. An empty list of ids is set: it picks none.
func (f *JobFilter) empty() bool {
	return len(f.Queues) == 0 && f.IDs == nil && f.Unique == "" && f.Worker == "" && f.Error == "" && f.Contains == "" &&
		len(f.Where) == 0 && f.Fingerprint == "" && f.MinAttempts == 0 &&
		f.CreatedSince.IsZero() && f.CreatedBefore.IsZero() && f.RunSince.IsZero() && f.RunBefore.IsZero() &&
		f.DiedSince.IsZero() && f.DiedBefore.IsZero()
}

// checkChange refuses a filter by which a verb would change every job, unless that is said.
func (f *JobFilter) checkChange() error {
	if f.empty() && !f.All {
		return fmt.Errorf("%w: an empty filter changes nothing: set All for every job", honker.ErrInvalid)
	}
	return nil
}

// matches is the part of the filter that SQL does not know.
func (f *JobFilter) matches(j store.SelectedJob) bool {
	return f.Fingerprint == "" || f.Fingerprint == fingerprint(j.LastError)
}
