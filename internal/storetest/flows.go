package storetest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

func flows(t *testing.T, open func(t *testing.T) *Fixture) {
	subtests(t, open, map[string]func(t *testing.T, d *Fixture){
		"IDOnce":       flowIDOnce,
		"StepsFenced":  flowSteps,
		"Signals":      flowSignals,
		"CallerGoesOn": flowCaller,
		"Restart":      flowRestart,
		"Swept":        flowSwept,
		"Listed":       flowListed,
	})
}

// startRun adds a run with its job. parent is the job of the run that called it, or 0.
func (d *Fixture) startRun(t *testing.T, flow, id string, parent int64) row.FlowRun {
	t.Helper()
	r := row.FlowRun{Flow: flow, ID: id, Parent: parent}
	d.mustWrite(t, func(ctx context.Context, q engine.Querier) error {
		require.NoError(t, d.Stores.Flows.Prepare(ctx, q))
		out, err := d.Stores.Jobs.Insert(ctx, q, &row.Insert{Queue: "flow:" + flow, Payloads: []string{`1`}, MaxAttempts: 5}, start)
		require.NoError(t, err)
		r.Job = out.IDs[0]
		added, err := d.Stores.Flows.Add(ctx, q, r, start)
		require.True(t, added)
		return err
	})
	return r
}

// runJob claims the next job of a flow for a minute.
func (d *Fixture) runJob(t *testing.T, flow string, now time.Time) row.Job {
	t.Helper()
	ids := d.opsTake(t, "flow:"+flow, 1, now)
	require.Len(t, ids, 1)
	j, _ := d.find(t, ids[0])
	return j
}

// suspend runs the next job of a flow and gives it back for a day.
func (d *Fixture) suspend(t *testing.T, flow string) {
	t.Helper()
	j := d.runJob(t, flow, start)
	d.settleJobs(t, start, &row.Settlement{Claim: claimOf(&j), Queue: j.Queue, Outcome: row.Snoozed, Delay: 24 * time.Hour})
}

func (d *Fixture) saveStep(t *testing.T, c row.Claim, s row.FlowStepRow, now time.Time) (saved, cancelled bool) {
	t.Helper()
	d.mustWrite(t, func(ctx context.Context, q engine.Querier) (err error) {
		saved, cancelled, err = d.Stores.Flows.Save(ctx, q, c, s, now)
		return err
	})
	return saved, cancelled
}

func (d *Fixture) history(t *testing.T, job int64) (h row.FlowHistory) {
	t.Helper()
	d.read(t, func(ctx context.Context, q engine.Querier) (err error) {
		var found bool
		h, found, err = d.Stores.Flows.History(ctx, q, job)
		require.True(t, found)
		return err
	})
	return h
}

// A flow has a run with an ID once. A run that is rolled back leaves nothing.
func flowIDOnce(t *testing.T, d *Fixture) {
	d.read(t, func(ctx context.Context, q engine.Querier) error {
		_, found, err := d.Stores.Flows.Find(ctx, q, "order", "1")
		require.False(t, found)
		return err
	})
	for _, r := range []row.FlowRun{d.startRun(t, "order", "1", 0), d.startRun(t, "order", "2", 0), d.startRun(t, "ship", "1", 7)} {
		d.rollBack(t, func(ctx context.Context, q engine.Querier) error {
			held, found, err := d.Stores.Flows.Hold(ctx, q, r.Flow, r.ID)
			require.True(t, found)
			require.True(t, held.StartedAt.Equal(start))
			held.StartedAt = time.Time{}
			require.Equal(t, r, held)
			require.NoError(t, err)
			added, err := d.Stores.Flows.Add(ctx, q, row.FlowRun{Job: 99, Flow: r.Flow, ID: r.ID}, start)
			require.False(t, added)
			require.NoError(t, err)
			return d.Stores.Flows.End(ctx, q, r.Job, row.FlowDone, time.Time{}, start)
		})
		require.Zero(t, d.history(t, r.Job).Run.EndedAt)
	}
}

// A step is saved once, by the valid claim of its job only, and tells of a cancellation.
func flowSteps(t *testing.T, d *Fixture) {
	r := d.startRun(t, "order", "1", 0)
	j := d.runJob(t, "order", start)
	c := claimOf(&j)
	step := row.FlowStepRow{Name: "a", Kind: row.FlowWait, Seq: 1, Value: `1`, Began: start, Until: start.Add(time.Hour)}
	for _, bad := range []row.Claim{{ID: c.ID + 1, Worker: c.Worker, Attempt: c.Attempt}, {ID: c.ID, Worker: "other", Attempt: c.Attempt}, {ID: c.ID, Worker: c.Worker, Attempt: c.Attempt + 1}} {
		saved, _ := d.saveStep(t, bad, step, start)
		require.False(t, saved)
	}
	saved, cancelled := d.saveStep(t, c, step, start)
	require.True(t, saved)
	require.False(t, cancelled)
	h := d.history(t, r.Job)
	require.Len(t, h.Steps, 1)
	require.True(t, h.Steps[0].Until.Equal(step.Until))
	require.Zero(t, h.Steps[0].Ended)

	d.mustWrite(t, func(ctx context.Context, q engine.Querier) error { return d.Stores.Flows.Cancel(ctx, q, r.Job) })
	step.Ended, step.Value = start.Add(time.Second), `2`
	saved, cancelled = d.saveStep(t, c, step, start)
	require.True(t, saved)
	require.True(t, cancelled)
	step.Value = `3`
	saved, _ = d.saveStep(t, c, step, start)
	require.False(t, saved, "it has ended")
	saved, _ = d.saveStep(t, c, row.FlowStepRow{Name: "b", Seq: 2, Began: start, Ended: start}, start.Add(2*time.Minute))
	require.False(t, saved, "the claim has lapsed")
	h = d.history(t, r.Job)
	require.Len(t, h.Steps, 1)
	require.Equal(t, `2`, h.Steps[0].Value)
	require.True(t, h.Steps[0].Ended.Equal(step.Ended))
	require.True(t, h.Run.Cancelled)
}

// The first signal of a name stays. It makes the job of a run due if the run waits for the signal, and no other.
func flowSignals(t *testing.T, d *Fixture) {
	r := d.startRun(t, "order", "1", 0)
	j := d.runJob(t, "order", start)
	saved, _ := d.saveStep(t, claimOf(&j), row.FlowStepRow{Name: "go", Kind: row.FlowWait, Seq: 1, Began: start}, start)
	require.True(t, saved)
	d.settleJobs(t, start, &row.Settlement{Claim: claimOf(&j), Queue: j.Queue, Outcome: row.Snoozed, Delay: 24 * time.Hour})
	signal := func(name, value string) (first bool) {
		d.mustWrite(t, func(ctx context.Context, q engine.Querier) (err error) {
			first, err = d.Stores.Flows.Signal(ctx, q, row.FlowSignal{Flow: "order", ID: "1", Name: name, Value: value}, start)
			return err
		})
		return first
	}
	require.True(t, signal("other", `1`))
	require.Empty(t, d.opsTake(t, "flow:order", 1, start))
	require.True(t, signal("go", `2`))
	require.False(t, signal("go", `3`))
	require.Equal(t, r.Job, d.runJob(t, "order", start).ID)
	require.Equal(t, map[string]string{"other": `1`, "go": `2`}, d.history(t, r.Job).Signals)
}

// A suspended run goes on when the run that it called has ended: by its settle, by a delete, or as a dead letter.
func flowCaller(t *testing.T, d *Fixture) {
	for name, end := range map[string]func(child row.FlowRun){
		"resumed": func(child row.FlowRun) {
			d.mustWrite(t, func(ctx context.Context, q engine.Querier) error {
				flow, err := d.Stores.Flows.Resume(ctx, q, child.Parent, start)
				require.Equal(t, "resumed", flow)
				return err
			})
		},
		"deleted": func(child row.FlowRun) { d.cancelIn(t, "flow:"+child.Flow, child.Job) },
		"dead":    func(child row.FlowRun) { d.opsDie(t, "flow:"+child.Flow, start) },
	} {
		parent := d.startRun(t, name, "1", 0)
		d.suspend(t, name)
		require.Empty(t, d.opsTake(t, "flow:"+name, 1, start))
		end(d.startRun(t, "child of "+name, "1", parent.Job))
		j, _ := d.find(t, parent.Job)
		require.Less(t, j.RunAt, start.Add(24*time.Hour), name)
	}
	d.mustWrite(t, func(ctx context.Context, q engine.Querier) error {
		flow, err := d.Stores.Flows.Resume(ctx, q, 12345, start)
		require.Empty(t, flow)
		return err
	})
}

// cancelIn deletes a live job.
func (d *Fixture) cancelIn(t *testing.T, queue string, id int64) {
	t.Helper()
	d.mustWrite(t, func(ctx context.Context, q engine.Querier) error {
		_, err := d.Stores.Jobs.Cancel(ctx, q, queue, id, start)
		return err
	})
}

// A restart deletes the later steps, and forgets a cancellation and the error for which the run is undone.
func flowRestart(t *testing.T, d *Fixture) {
	r := d.startRun(t, "order", "1", 0)
	j := d.runJob(t, "order", start)
	for i, name := range []string{"c", "b", "a"} {
		saved, _ := d.saveStep(t, claimOf(&j), row.FlowStepRow{Name: name, Seq: i + 1, Began: start, Ended: start}, start)
		require.True(t, saved)
	}
	d.mustWrite(t, func(ctx context.Context, q engine.Querier) error {
		require.NoError(t, d.Stores.Flows.Cancel(ctx, q, r.Job))
		lost := claimOf(&j)
		lost.Attempt--
		for claim, want := range map[row.Claim]bool{lost: false, claimOf(&j): true} {
			failed, err := d.Stores.Flows.Fail(ctx, q, claim, "why", start)
			require.NoError(t, err)
			require.Equal(t, want, failed)
		}
		return nil
	})
	require.Equal(t, "why", d.history(t, r.Job).Run.Failure)
	for _, now := range []time.Time{start, start.Add(2 * time.Minute)} { // before and after the lapse of the claim
		d.mustWrite(t, func(ctx context.Context, q engine.Querier) error {
			done, err := d.Stores.Flows.Restart(ctx, q, r.Job, 2, now)
			require.Equal(t, now != start, done)
			return err
		})
		if now == start {
			require.Len(t, d.history(t, r.Job).Steps, 3)
		}
	}
	h := d.history(t, r.Job)
	require.Len(t, h.Steps, 1)
	require.Equal(t, "c", h.Steps[0].Name)
	require.False(t, h.Run.Cancelled)
	require.Empty(t, h.Run.Failure)
}

// A run is kept as long as its end says, and a run without a job is not kept. Others stay.
func flowSwept(t *testing.T, d *Fixture) {
	live, ended, forever, lost := d.startRun(t, "a", "1", 0), d.startRun(t, "b", "1", 0), d.startRun(t, "c", "1", 0), d.startRun(t, "d", "1", 0)
	dead := d.startRun(t, "e", "1", 0)
	d.opsDie(t, "flow:e", start)
	j := d.runJob(t, "b", start)
	saved, _ := d.saveStep(t, claimOf(&j), row.FlowStepRow{Name: "a", Seq: 1, Began: start, Ended: start}, start)
	require.True(t, saved)
	d.mustWrite(t, func(ctx context.Context, q engine.Querier) error {
		_, err := d.Stores.Flows.Signal(ctx, q, row.FlowSignal{Flow: "b", ID: "1", Name: "x", Value: `1`}, start)
		require.NoError(t, err)
		require.NoError(t, d.Stores.Flows.End(ctx, q, ended.Job, row.FlowDone, start.Add(time.Minute), start))
		return d.Stores.Flows.End(ctx, q, forever.Job, row.FlowCancelled, time.Time{}, start)
	})
	d.cancelIn(t, "flow:d", lost.Job)
	all := []int64{live.Job, ended.Job, forever.Job, dead.Job}
	s := d.Stores.Sweeps.Runs
	require.Equal(t, []int64{lost.Job}, d.seek(t, s, row.Part{}, start))
	require.Equal(t, 1, d.take(t, s, row.Part{}, append(all, lost.Job), start).N)
	require.Equal(t, []int64{ended.Job}, d.seek(t, s, row.Part{}, start.Add(time.Minute)))
	require.Equal(t, 1, d.take(t, s, row.Part{}, all, start.Add(time.Minute)).N)
	require.Empty(t, d.seek(t, s, row.Part{}, start.Add(1000*time.Hour)))

	again := d.startRun(t, "b", "1", 0)
	h := d.history(t, again.Job)
	require.Empty(t, h.Signals)
	require.Empty(t, h.Steps)
}

// A list has the newest runs first, with the state of their jobs.
func flowListed(t *testing.T, d *Fixture) {
	d.startRun(t, "order", "dead", 0)
	d.opsDie(t, "flow:order", start)
	running := d.startRun(t, "order", "running", 0)
	d.runJob(t, "order", start)
	over := d.startRun(t, "ship", "over", running.Job)
	d.mustWrite(t, func(ctx context.Context, q engine.Querier) error {
		return d.Stores.Flows.End(ctx, q, over.Job, row.FlowCancelled, time.Time{}, start.Add(time.Second))
	})
	waiting := d.startRun(t, "order", "waiting", 0)
	list := func(f row.FlowFilter) (names []string) {
		d.read(t, func(ctx context.Context, q engine.Querier) error {
			all, err := d.Stores.Flows.List(ctx, q, f, start)
			for _, v := range all {
				names = append(names, v.Flow+"/"+v.ID+" "+string(v.State)+" "+v.ParentID+v.LastError)
				require.Equal(t, v.Job == waiting.Job, !v.RunAt.IsZero())
			}
			return err
		})
		return names
	}
	require.Equal(t, []string{"order/waiting waiting ", "ship/over cancelled running", "order/running running ", "order/dead failed no luck"},
		list(row.FlowFilter{Before: 1 << 60, Limit: 10}))
	require.Equal(t, []string{"order/running running ", "order/dead failed no luck"}, list(row.FlowFilter{Flow: "order", Before: waiting.Job, Limit: 10}))
	require.Equal(t, []string{"order/dead failed no luck"}, list(row.FlowFilter{State: row.FlowIsFailed, Before: 1 << 60, Limit: 1}))
}
