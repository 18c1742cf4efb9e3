//go:build unix

package torture

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/honker-go/honker/dispatch"
	"github.com/honker-go/honker/internal/testkit"
)

// checkDispatch compares the file with the ledgers of the processes of a dispatch round.
func (s *storm) checkDispatch() error {
	r := &reckoning{storm: s, noted: map[string]map[int64]int{}}
	if err := r.readLedgers(); err != nil {
		return err
	}
	ctx := context.Background()
	finished, err := r.tally(ctx, `SELECT CAST(value AS BIGINT) FROM _honker_results`)
	if err != nil {
		return err
	}
	dead, err := r.tally(ctx, `SELECT CAST(payload AS BIGINT) FROM _honker_dead`)
	if err != nil {
		return err
	}
	begun := 0
	for _, times := range r.noted[taskBegun] {
		begun += times
	}
	r.Add("commits", int64(len(r.noted[jobAcked])))
	r.countLost()
	r.Add("jobs", int64(len(finished)+len(dead)))
	r.Add("dead", int64(len(dead)))
	r.Add("stopped_jobs", int64(len(r.noted[stopDone])))
	r.Add("begun_again", int64(begun-len(r.noted[taskBegun])))
	r.Add("actors_stopped", int64(r.noted[actorEnded][1]))
	r.Add("names_refused", int64(r.noted[nameTaken][1]))
	return errors.Join(
		r.ended(finished, dead), r.neverRan(finished, dead), r.dispatchEffects(ctx, finished), r.replies(ctx, finished),
		r.dispatchOrders(ctx, finished, dead), r.statuses(ctx, len(finished), len(dead)), r.logged(ctx, finished), s.db.Check(ctx))
}

// ended checks that each acknowledged job has ended exactly once, unless it was stopped. A job that
// is known to have ended must have a result.
func (r *reckoning) ended(finished, dead map[int64]int) error {
	found := maps.Clone(finished)
	for n, times := range dead {
		found[n] += times
	}
	due := maps.Clone(r.noted[jobAcked])
	for n := range r.noted[stopMeant] {
		if found[n] == 0 {
			delete(due, n)
		}
	}
	rejected := map[int64]int{}
	for n := range found {
		if isRejected(n) {
			rejected[n] = 1
		}
	}
	return errors.Join(
		r.compare("job", due, r.noted[jobMeant], found, true),
		r.compare("dead letter", rejected, rejected, dead, true),
		r.compare("end of job", r.noted[taskEnded], finished, finished, true))
}

// neverRan checks that stopped jobs have not ended.
func (r *reckoning) neverRan(finished, dead map[int64]int) error {
	for n := range r.noted[stopDone] {
		if finished[n]+dead[n] > 0 {
			r.Add("stopped_ran", 1)
			return fmt.Errorf("job %d was stopped, and has ended %d times, and died %d times", n, finished[n], dead[n])
		}
	}
	return nil
}

// dispatchEffects checks that each finished job that ends in a transaction has its effect exactly
// once.
func (r *reckoning) dispatchEffects(ctx context.Context, finished map[int64]int) error {
	effects, err := r.tally(ctx, `SELECT number FROM effects`)
	want := map[int64]int{}
	for n := range finished {
		if hasEffect(n) {
			want[n] = 1
		}
	}
	r.Add("effects", int64(len(effects)))
	return errors.Join(err, r.compare("effect of job", want, want, effects, true))
}

// replies checks that each job that requested a reply has exactly one.
func (r *reckoning) replies(ctx context.Context, finished map[int64]int) error {
	replies, err := r.tally(ctx, testkit.Either(
		`SELECT CAST(payload ->> 'output' AS BIGINT) FROM _honker_live WHERE queue = 'replies' AND payload ->> 'state' = 'finished'`,
		`SELECT CAST(payload::json ->> 'output' AS BIGINT) FROM job WHERE queue = 'replies' AND payload::json ->> 'state' = 'finished'`))
	want := map[int64]int{}
	for n := range finished {
		if wantsReply(n) {
			want[n] = 1
		}
	}
	r.Add("replies", int64(len(replies)))
	return errors.Join(err, r.compare("reply to job", want, want, replies, true))
}

// dispatchOrders checks that the jobs committed together with an order exist.
func (r *reckoning) dispatchOrders(ctx context.Context, finished, dead map[int64]int) error {
	orders, err := r.tally(ctx, `SELECT number FROM orders`)
	for n := range orders {
		if finished[n]+dead[n] != 1 || r.noted[doomed][n] > 0 {
			r.Add("phantoms", 1)
			return fmt.Errorf("order %d was committed: %v, its job has ended %d times", n, r.noted[doomed][n] == 0, finished[n]+dead[n])
		}
	}
	return err
}

// statuses checks that the status of each job agrees with its end.
func (r *reckoning) statuses(ctx context.Context, finished, dead int) error {
	ids, err := column[int64](ctx, r.db.SQL(), testkit.Either(`SELECT job_id FROM _honkerx_dispatch_jobs`, `SELECT job_id FROM sent_job`))
	if err != nil {
		return err
	}
	d := dispatch.New(r.db, nil)
	states := map[dispatch.State]int{}
	for _, id := range ids {
		s, err := d.Status(ctx, id)
		if err != nil {
			return err
		}
		states[s.State]++
	}
	stopped := states[dispatch.Stopped] + states[dispatch.Stopping]
	if states[dispatch.Finished] != finished || states[dispatch.Failed] != dead || finished+dead+stopped != len(ids) {
		return fmt.Errorf("of %d jobs, %d have ended and %d died, and their states are %v", len(ids), finished, dead, states)
	}
	return nil
}

// logged checks that the log contains a single end of each job.
func (r *reckoning) logged(ctx context.Context, finished map[int64]int) error {
	ends, err := column[int64](ctx, r.db.SQL(), `SELECT count(*) FROM _honker_stream WHERE topic = 'hero:events' AND key = 'finished'
GROUP BY `+testkit.Either(`payload`, `CAST(payload AS JSON)`)+` ->> 'id'`)
	if err == nil && len(ends) != len(finished) {
		err = fmt.Errorf("the log has %d ends for %d jobs", len(ends), len(finished))
	}
	for _, times := range ends {
		if times > 1 {
			r.Add("duplicates", 1)
			err = errors.Join(err, fmt.Errorf("the log has %d ends of a job", times))
		}
	}
	return err
}
