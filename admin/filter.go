package admin

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// JobFilter selects jobs for lists, counts and changes. A job must match all fields that are set. In
// functions that only read, the zero filter selects all jobs. Functions that change jobs return ErrInvalid
// for the zero filter; set All to select every job.
//
// Times are stored in whole seconds and compared as such. Since fields are inclusive and rounded up.
// Before fields are exclusive.
//
// Some fields apply only to certain jobs; for example, DiedSince never matches a live job. Lists skip jobs
// to which a field does not apply. Functions that change jobs reject such fields, as well as phases that
// they cannot change. They therefore change either exactly the jobs that a list shows or none at all.
type JobFilter struct {
	Queues      []string          // any of these
	Phases      []honker.Phase    // any of these, at the time of the read
	IDs         []int64           // any of these
	Key         string            // limit key (see honker.Key)
	Unique      string            // unique key (see honker.Unique)
	Batch       int64             // batch the job belongs to
	Worker      string            // worker that holds the job; live jobs only
	Error       string            // substring of the last attempt's error
	Contains    string            // substring of the stored payload; ErrInvalid for a DB with a Codec
	Where       map[string]string // payload fields, such as {"order.id": "17"}; numbers must match as written; ErrInvalid for a DB with a Codec
	Header      map[string]string // job headers by name
	Fingerprint string            // error fingerprint (see DeadGroup); dead jobs only
	MinAttempts int
	Requeue     int64 // ID of a Requeue's AuditEntry; live jobs that it requeued and that have used no attempt since

	CreatedSince, CreatedBefore time.Time
	RunSince, RunBefore         time.Time
	DiedSince, DiedBefore       time.Time // dead jobs only

	All bool // select every job; required to change jobs if no other field is set
}

// maxFilterIDs limits the lengths of IDs and Queues.
const maxFilterIDs = 10000

var (
	livePhases = []honker.Phase{honker.PhaseReady, honker.PhaseScheduled, honker.PhaseRunning, honker.PhaseLapsed, honker.PhaseHeld, honker.PhaseExpired}
	deadPhases = []honker.Phase{honker.PhaseDead}
	allPhases  = append(slices.Clone(livePhases), honker.PhaseDead, honker.PhaseDone)
)

// selection converts f to a selection of live or dead jobs, for functions that change jobs.
func (f *JobFilter) selection(dead bool) (row.JobSelect, error) {
	in, phases, what := row.Live, livePhases, "live"
	if dead {
		in, phases, what = row.Dead, deadPhases, "dead"
	}
	s := f.selected()
	s.In = in
	var errs []error
	for _, p := range f.Phases {
		if !slices.Contains(phases, p) {
			errs = append(errs, fmt.Errorf("%w: the verb changes only %s jobs and cannot select phase %q", honker.ErrInvalid, what, p))
		}
	}
	if dead && f.Worker != "" {
		errs = append(errs, fmt.Errorf("%w: Worker cannot select dead jobs", honker.ErrInvalid))
	}
	if dead && f.Requeue != 0 {
		errs = append(errs, fmt.Errorf("%w: Requeue cannot select dead jobs", honker.ErrInvalid))
	}
	if !dead && f.ofDead() {
		errs = append(errs, fmt.Errorf("%w: Fingerprint, DiedSince and DiedBefore cannot select live jobs", honker.ErrInvalid))
	}
	return s, errors.Join(append(errs, f.check())...)
}

// looking converts f to a selection, for functions that only read.
func (f *JobFilter) looking() (row.JobSelect, error) {
	s := f.selected()
	only := func(phases ...row.Phase) { s.Phases = narrow(s.Phases, phases) }
	if f.Worker != "" {
		only(row.PhaseRunning, row.PhaseLapsed, row.PhaseExpired)
	}
	if f.Requeue != 0 {
		only(row.PhaseReady, row.PhaseScheduled, row.PhaseHeld, row.PhaseExpired)
	}
	if f.ofDead() {
		only(row.PhaseDead)
	}
	return s, f.check()
}

// narrow returns the intersection of phases and to. If phases is nil, it means all phases. The result is
// never nil.
func narrow(phases, to []row.Phase) []row.Phase {
	both := []row.Phase{}
	for _, p := range to {
		if phases == nil || slices.Contains(phases, p) {
			both = append(both, p)
		}
	}
	return both
}

// selected converts f to the store's type.
func (f *JobFilter) selected() row.JobSelect {
	s := row.JobSelect{
		Queues: f.Queues, IDs: f.IDs, Key: f.Key, Unique: f.Unique, Batch: f.Batch, Worker: f.Worker, Error: f.Error,
		Contains: f.Contains, MinAttempts: int64(f.MinAttempts), Requeue: f.Requeue,
		CreatedSince: f.CreatedSince, CreatedBefore: f.CreatedBefore,
		RunSince: f.RunSince, RunBefore: f.RunBefore,
		DiedSince: f.DiedSince, DiedBefore: f.DiedBefore,
		Where: fields(f.Where, jsonPath), Header: fields(f.Header, jsonName),
	}
	for _, p := range f.Phases {
		s.Phases = append(s.Phases, row.Phase(p))
	}
	return s
}

// fields replaces a filter map's keys with JSON paths.
func fields(of map[string]string, path func(string) string) map[string]string {
	if len(of) == 0 {
		return nil
	}
	out := make(map[string]string, len(of))
	for name, value := range of {
		out[path(name)] = value
	}
	return out
}

// jsonPath turns "order.id" into $."order"."id". The quotes keep names from being parsed as expressions.
func jsonPath(field string) string {
	return `$."` + strings.ReplaceAll(field, ".", `"."`) + `"`
}

// jsonName returns the JSON path of a top-level member whose name may contain dots.
func jsonName(name string) string { return `$."` + name + `"` }

func (f *JobFilter) check() error {
	var errs []error
	invalid := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: "+format, append([]any{honker.ErrInvalid}, args...)...))
	}
	if len(f.IDs) > maxFilterIDs || len(f.Queues) > maxFilterIDs {
		invalid("a filter can have at most %d IDs and %d Queues, but has %d and %d", maxFilterIDs, maxFilterIDs, len(f.IDs), len(f.Queues))
	}
	for _, name := range f.Queues {
		errs = append(errs, engine.CheckName("queue name", name))
	}
	for _, p := range f.Phases {
		if !slices.Contains(allPhases, p) {
			invalid("phase %q does not exist", p)
		}
	}
	for what, of := range map[string]map[string]string{"field": f.Where, "header": f.Header} {
		for name := range of {
			if name == "" || strings.ContainsAny(name, "\"\\\x00") {
				invalid("%s name %q must not be empty or contain quotes, backslashes or NUL", what, name)
			}
		}
	}
	if f.MinAttempts < 0 || f.Batch < 0 || f.Requeue < 0 {
		invalid("MinAttempts, Batch and Requeue must not be negative, but are %d, %d and %d", f.MinAttempts, f.Batch, f.Requeue)
	}
	return errors.Join(errs...)
}

// checkCodec rejects payload filters if the DB has a codec. Such a filter would be compared with
// encoded payloads and silently select nothing.
func (f *JobFilter) checkCodec(e *engine.Engine) error {
	if e == nil || e.Codec == nil || f.Contains == "" && len(f.Where) == 0 {
		return nil
	}
	return fmt.Errorf("%w: Contains and Where cannot be used with a Codec, because they search payloads as they are stored", honker.ErrInvalid)
}

// ofDead reports whether f sets a field that applies only to dead jobs.
func (f *JobFilter) ofDead() bool {
	return f.Fingerprint != "" || !f.DiedSince.IsZero() || !f.DiedBefore.IsZero()
}

// searches reports whether the filter requires reading rows instead of only indexes.
func (f *JobFilter) searches() bool {
	f2 := *f
	f2.Queues, f2.Phases, f2.IDs = nil, nil, nil
	return !f2.empty()
}

// empty reports whether no field but All is set. An IDs slice that is empty but not nil counts as
// set and selects no jobs.
func (f *JobFilter) empty() bool {
	return len(f.Queues) == 0 && len(f.Phases) == 0 && f.IDs == nil && f.Key == "" && f.Unique == "" && f.Batch == 0 &&
		f.Worker == "" && f.Error == "" && f.Contains == "" && len(f.Where) == 0 && len(f.Header) == 0 &&
		f.MinAttempts == 0 && f.Requeue == 0 && f.CreatedSince.IsZero() && f.CreatedBefore.IsZero() &&
		f.RunSince.IsZero() && f.RunBefore.IsZero() && !f.ofDead()
}

// checkChange rejects an empty filter, which would change every job, unless All is set.
func (f *JobFilter) checkChange() error {
	if f.empty() && !f.All {
		return fmt.Errorf("%w: an empty filter must have All set to change every job", honker.ErrInvalid)
	}
	return nil
}

// matches applies the parts of the filter that are not evaluated in SQL.
func (f *JobFilter) matches(j row.SelectedJob) bool {
	return f.Fingerprint == "" || f.Fingerprint == fingerprint(j.LastError)
}
