//go:build unix

package torture

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/honker-go/honker/internal/testkit"
)

// reckoning compares a database with its ledgers.
type reckoning struct {
	*storm
	noted  map[string]map[int64]int // number of notes, by kind and by noted number
	runs   [][]int64                // events handled by each subscriber
	events []event
	faults []error
}

type event struct{ offset, number int64 }

func (s *storm) checkJobs() error {
	r := &reckoning{storm: s, noted: map[string]map[int64]int{}}
	ctx := context.Background()
	if err := errors.Join(r.readLedgers(), r.readEvents(ctx)); err != nil {
		return err
	}
	for _, compare := range []func(context.Context) error{
		r.jobs, r.mails, r.published, r.orders, r.handled, r.doubles, r.taken, r.fired, r.counted, r.linked, r.bounded, r.operated, s.db.Check,
	} {
		if err := compare(ctx); err != nil {
			r.faults = append(r.faults, err)
		}
	}
	r.Add("commits", int64(len(r.noted[jobAcked])+len(r.noted[mailAcked])+len(r.noted[eventAcked])))
	r.Add("ordered", int64(len(r.events)))
	r.countLost()
	if r.clocks != nil {
		r.Add("clock_steps", int64(r.noted[stepped][1]))
	}
	return errors.Join(r.faults...)
}

// readLedgers reads the notes of all processes. The events handled by a subscriber are kept by run.
func (r *reckoning) readLedgers() error {
	all, err := testkit.ReadLedgers(filepath.Join(r.Dir, "ledger-*"))
	for _, path := range slices.Sorted(maps.Keys(all)) {
		var run []int64
		end := func() {
			if run != nil {
				r.runs = append(r.runs, run)
			}
			run = nil
		}
		for _, e := range all[path] {
			if strings.Contains(e.What, "/") { // a note about a relay batch, see testkit.ReadRelayHistory
				continue
			}
			if r.noted[e.What] == nil {
				r.noted[e.What] = map[int64]int{}
			}
			r.noted[e.What][e.Number]++
			switch e.What {
			case subscribed:
				end()
			case handled:
				run = append(run, e.Number)
			}
		}
		end()
	}
	return err
}

func (r *reckoning) readEvents(ctx context.Context) error {
	return eachRow(ctx, r.db.SQL(), `SELECT "offset", CAST(payload AS BIGINT) FROM _honker_stream WHERE topic = 'events' ORDER BY "offset"`,
		func(row []any) { r.events = append(r.events, event{row[0].(int64), row[1].(int64)}) })
}

// countLost counts the roles that began again because the server was lost, and the calls whose outcome
// was uncertain.
func (r *reckoning) countLost() {
	if testkit.OnFile() {
		return
	}
	r.Add("lost", int64(r.noted[lost][1]))
	r.Add("uncertain", int64(r.noted[uncertain][1]))
}

// compare reports numbers that were lost, that are unknown, or that were found more than once.
func (r *reckoning) compare(what string, acked, meant map[int64]int, found map[int64]int, once bool) error {
	var errs []error
	count := func(counter string, n int64, why string) {
		r.Add(counter, 1)
		if len(errs) < 5 {
			errs = append(errs, fmt.Errorf("%s %d: %s", what, n, why))
		}
	}
	for n := range acked {
		if found[n] == 0 {
			count("acked_lost", n, "was acknowledged but is lost")
		}
	}
	for n, times := range found {
		if meant[n] == 0 || r.noted[doomed][n] > 0 {
			count("phantoms", n, "was never committed but exists")
		}
		if once && times > 1 {
			count("duplicates", n, fmt.Sprintf("exists %d times", times))
		}
	}
	return errors.Join(errs...)
}

// none runs queries that must return 0. The values of the map describe the violations.
func (r *reckoning) none(ctx context.Context, counter string, queries map[string]string) error {
	var errs []error
	for query, what := range queries {
		n, err := one[int64](ctx, r.db.SQL(), query)
		if err == nil && n > 0 {
			r.Add(counter, n)
			err = fmt.Errorf("%d %s", n, what)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// tally counts each number that a query returns.
func (r *reckoning) tally(ctx context.Context, query string) (map[int64]int, error) {
	numbers, err := column[int64](ctx, r.db.SQL(), query)
	found := map[int64]int{}
	for _, n := range numbers {
		found[n]++
	}
	return found, err
}

// jobs checks that each job has its effect exactly once, or is dead as expected.
func (r *reckoning) jobs(ctx context.Context) error {
	effects, err := r.tally(ctx, `SELECT number FROM effects`)
	if err != nil {
		return err
	}
	dead, err := r.tally(ctx, `SELECT CAST(payload AS BIGINT) FROM _honker_dead WHERE queue = 'work'`)
	if err != nil {
		return err
	}
	r.Add("jobs", int64(len(effects)+len(dead)))
	var wrong error
	for n := range dead {
		if !isRejected(n) {
			wrong = fmt.Errorf("job %d is dead", n)
		}
		effects[n] += dead[n]
	}
	return errors.Join(wrong, r.compare("job", r.noted[jobAcked], r.noted[jobMeant], effects, true))
}

func (r *reckoning) mails(context.Context) error {
	return r.compare("mail", r.noted[mailAcked], r.noted[mailMeant], r.noted[sent], false)
}

// published checks that each event exists exactly once, and that the events of each producer are in
// order.
func (r *reckoning) published(context.Context) error {
	found, last := map[int64]int{}, map[int64]int64{}
	var disorder error
	for _, e := range r.events {
		found[e.number]++
		if producer := e.number >> 24; e.number > last[producer] {
			last[producer] = e.number
		} else {
			r.Add("order_violations", 1)
			disorder = fmt.Errorf("event %d of %d after %d", e.offset, e.number, last[producer])
		}
	}
	return errors.Join(disorder, r.compare("event", r.noted[eventAcked], r.noted[eventMeant], found, true))
}

// orders checks that the events and mails committed with each order exist.
func (r *reckoning) orders(ctx context.Context) error {
	orders, err := r.tally(ctx, `SELECT number FROM orders`)
	if err != nil {
		return err
	}
	events := map[int64]int{}
	for _, e := range r.events {
		events[e.number]++
	}
	for n := range orders {
		if events[n] != 1 || r.noted[sent][n] == 0 || r.noted[doomed][n] > 0 {
			r.Add("phantoms", 1)
			return fmt.Errorf("order %d has %d events and was sent %d times", n, events[n], r.noted[sent][n])
		}
	}
	return nil
}

// handled checks that no run of the subscriber has a gap and that all events were handled. Each run
// must begin at most saveEvery events before the end of the previous run.
func (r *reckoning) handled(context.Context) error {
	at := map[int64]int{}
	for i, e := range r.events {
		at[e.offset] = i
	}
	next := 0
	for _, run := range r.runs {
		first := at[run[0]]
		if first > next || next-first > saveEvery {
			r.Add("order_violations", 1)
			return fmt.Errorf("a subscriber begins at event %d after %d were handled", first, next)
		}
		r.Add("redelivered", int64(next-first))
		for i, offset := range run {
			if at[offset] != first+i {
				r.Add("order_violations", 1)
				return fmt.Errorf("a subscriber handles %d as number %d of its run from %d", offset, i, first)
			}
		}
		next = max(next, first+len(run))
	}
	if next != len(r.events) {
		r.Add("acked_lost", int64(len(r.events)-next))
		return fmt.Errorf("%d of %d events were handled", next, len(r.events))
	}
	return nil
}

// doubles checks that the pipe has published a result for each event, in order.
func (r *reckoning) doubles(ctx context.Context) error {
	got, err := column[int64](ctx, r.db.SQL(), `SELECT CAST(payload AS BIGINT) FROM _honker_stream WHERE topic = 'doubles' ORDER BY "offset"`)
	want := make([]int64, len(r.events))
	for i, e := range r.events {
		want[i] = 2 * e.number
	}
	if err == nil && !slices.Equal(want, got) {
		r.Add("order_violations", 1)
		err = fmt.Errorf("a pipe published %d events for %d, or in the wrong order", len(got), len(want))
	}
	return err
}

// taken checks that each event was handled by a member of the group exactly once.
func (r *reckoning) taken(ctx context.Context) error {
	taken, err := r.tally(ctx, `SELECT number FROM taken`)
	all := map[int64]int{}
	for _, e := range r.events {
		all[e.number]++
	}
	return errors.Join(err, r.compare("event of a group", all, all, taken, true))
}

// fired checks that each second of the schedule has exactly one job.
func (r *reckoning) fired(ctx context.Context) error {
	jobs, err := one[int64](ctx, r.db.SQL(), `SELECT count(*) FROM _honker_live WHERE queue = 'fired'`)
	if err != nil {
		return err
	}
	next, err := r.db.Scheduler().Soonest(ctx)
	if due := int64(next.Sub(r.first) / time.Second); err == nil && due != jobs {
		r.Add("schedule_violations", 1)
		err = fmt.Errorf("a schedule was due %d times and fired %d times", due, jobs)
	}
	r.Add("fired", jobs)
	return err
}
