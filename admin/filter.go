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

// JobFilter picks jobs: for a list, a count, a dry run and a verb alike. Fields that are set must all
// match. The zero filter picks all for looking, and is ErrInvalid for a verb that changes jobs, unless All
// is set. Times are compared by whole seconds, since the file has no others; a Since is rounded up, a
// Before is not in the selection.
//
// A list passes over the jobs that a field cannot match, as live ones with DiedSince. A verb refuses a
// filter that asks for them, as phases in which it can change no job: it acts on what the list shows, or
// on nothing.
type JobFilter struct {
	Queues      []string          // any of these
	Phases      []honker.Phase    // any of these, when it is looked at
	IDs         []int64           // any of these
	Key         string            // what the job shares a limit by
	Unique      string            // the key of honker.Unique
	Batch       int64             // that the job is a member of
	Worker      string            // that holds the job: live jobs only
	Error       string            // the error of the last attempt contains it
	Contains    string            // the payload, as stored, contains it; ErrInvalid for a DB with a Codec
	Where       map[string]string // fields of the payload: {"order.id": "17"}; numbers as they are written; ErrInvalid for a DB with a Codec
	Header      map[string]string // headers of the job, by their names
	Fingerprint string            // of the error, see DeadGroup: dead jobs only
	MinAttempts int

	CreatedSince, CreatedBefore time.Time
	RunSince, RunBefore         time.Time
	DiedSince, DiedBefore       time.Time // dead jobs only

	All bool // every job, where nothing else is set
}

// maxFilterIDs bounds the lists of a filter.
const maxFilterIDs = 10000

var (
	livePhases = []honker.Phase{honker.PhaseReady, honker.PhaseScheduled, honker.PhaseRunning, honker.PhaseLapsed, honker.PhaseHeld, honker.PhaseExpired}
	deadPhases = []honker.Phase{honker.PhaseDead}
	allPhases  = append(slices.Clone(livePhases), honker.PhaseDead, honker.PhaseDone)
)

// selection is what the filter picks among live or dead jobs, for a verb that changes them.
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
			errs = append(errs, fmt.Errorf("%w: the verb changes %s jobs, and none that is %q", honker.ErrInvalid, what, p))
		}
	}
	if dead && f.Worker != "" {
		errs = append(errs, fmt.Errorf("%w: Worker picks no dead job", honker.ErrInvalid))
	}
	if !dead && f.ofDead() {
		errs = append(errs, fmt.Errorf("%w: Fingerprint, DiedSince and DiedBefore pick no live job", honker.ErrInvalid))
	}
	return s, errors.Join(append(errs, f.check())...)
}

// looking is what the filter picks among all jobs.
func (f *JobFilter) looking() (row.JobSelect, error) {
	s := f.selected()
	only := func(phases ...row.Phase) { s.Phases = narrow(s.Phases, phases) }
	if f.Worker != "" {
		only(row.PhaseRunning, row.PhaseLapsed, row.PhaseExpired)
	}
	if f.ofDead() {
		only(row.PhaseDead)
	}
	return s, f.check()
}

// narrow is what both have; nil has all. It is never nil.
func narrow(phases, to []row.Phase) []row.Phase {
	both := []row.Phase{}
	for _, p := range to {
		if phases == nil || slices.Contains(phases, p) {
			both = append(both, p)
		}
	}
	return both
}

// selected is the filter as package store knows it.
func (f *JobFilter) selected() row.JobSelect {
	s := row.JobSelect{
		Queues: f.Queues, IDs: f.IDs, Key: f.Key, Unique: f.Unique, Batch: f.Batch, Worker: f.Worker, Error: f.Error,
		Contains: f.Contains, MinAttempts: int64(f.MinAttempts),
		CreatedSince: since(f.CreatedSince), CreatedBefore: since(f.CreatedBefore),
		RunSince: since(f.RunSince), RunBefore: since(f.RunBefore),
		DiedSince: since(f.DiedSince), DiedBefore: since(f.DiedBefore),
		Where: fields(f.Where, jsonPath), Header: fields(f.Header, jsonName),
	}
	for _, p := range f.Phases {
		s.Phases = append(s.Phases, row.Phase(p))
	}
	return s
}

// fields are those of a filter, by their paths.
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

// jsonName is the path of a name in an object, dots and all.
func jsonName(name string) string { return `$."` + name + `"` }

func (f *JobFilter) check() error {
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
	for _, p := range f.Phases {
		if !slices.Contains(allPhases, p) {
			invalid("phase %q", p)
		}
	}
	for what, of := range map[string]map[string]string{"field": f.Where, "header": f.Header} {
		for name := range of {
			if name == "" || strings.ContainsAny(name, "\"\\\x00") {
				invalid("%s %q", what, name)
			}
		}
	}
	if f.MinAttempts < 0 || f.Batch < 0 {
		invalid("negative MinAttempts %d or Batch %d", f.MinAttempts, f.Batch)
	}
	return errors.Join(errs...)
}

// checkCodec refuses to look into payloads that are not stored as they were enqueued: it would find nothing, and
// not say why.
func (f *JobFilter) checkCodec(e *engine.Engine) error {
	if e == nil || e.Codec == nil || f.Contains == "" && len(f.Where) == 0 {
		return nil
	}
	return fmt.Errorf("%w: Contains and Where look at payloads as they are stored, and the DB has a Codec", honker.ErrInvalid)
}

// ofDead reports that a field is set that only dead jobs can match.
func (f *JobFilter) ofDead() bool {
	return f.Fingerprint != "" || !f.DiedSince.IsZero() || !f.DiedBefore.IsZero()
}

// searches reports that rows have to be read to find out what the filter picks.
func (f *JobFilter) searches() bool {
	f2 := *f
	f2.Queues, f2.Phases, f2.IDs = nil, nil, nil
	return !f2.empty()
}

// empty reports that nothing but All is set. An empty list of ids is set: it picks none.
func (f *JobFilter) empty() bool {
	return len(f.Queues) == 0 && len(f.Phases) == 0 && f.IDs == nil && f.Key == "" && f.Unique == "" && f.Batch == 0 &&
		f.Worker == "" && f.Error == "" && f.Contains == "" && len(f.Where) == 0 && len(f.Header) == 0 &&
		f.MinAttempts == 0 && f.CreatedSince.IsZero() && f.CreatedBefore.IsZero() &&
		f.RunSince.IsZero() && f.RunBefore.IsZero() && !f.ofDead()
}

// checkChange refuses a filter by which a verb would change every job, unless that is said.
func (f *JobFilter) checkChange() error {
	if f.empty() && !f.All {
		return fmt.Errorf("%w: an empty filter changes nothing: set All for every job", honker.ErrInvalid)
	}
	return nil
}

// matches is the part of the filter that SQL does not know.
func (f *JobFilter) matches(j row.SelectedJob) bool {
	return f.Fingerprint == "" || f.Fingerprint == fingerprint(j.LastError)
}
