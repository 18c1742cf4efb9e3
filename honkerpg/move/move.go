// Package move moves a running application from a file to PostgreSQL, queue by queue and topic by topic.
//
// docs/guide/moving-to-postgres.md describes the steps, and docs/internals/decisions/022-moving-to-postgres.md how it works.
package move

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/flow"
	"github.com/honker-go/honker/honkerpg/internal/pgbackend"
	"github.com/honker-go/honker/honkerpg/internal/pgstore/moves"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/wake"
)

const (
	lease       = 3 * time.Second
	parcelSize  = 500
	eventsSize  = 1000
	reserveFor  = 30 * time.Second
	betweenPass = 300 * time.Millisecond
)

// Run moves jobs, events, messages of relays, consumers, settings, schedules and the receipts of package inbox from a file to
// PostgreSQL, while programs use both. It returns when a pass has found nothing more to move and no job of the file runs, or when ctx ends. A move that was
// interrupted, at whatever point, goes on with the next Run. See [Options] for parts of a file.
//
// A job is in the file, on its way, or in the target, and runs nowhere else. It keeps its attempts, errors, time, priority, headers,
// keys and links, and its ID, unless the target was used before. Jobs that are linked to each other move together, when
// none of them runs.
//
// Runs of package flow cannot be moved. They should end in the file, with Options.Queues for the other queues.
//
// Run returns [honker.ErrUnsupported] unless from is a file and to is PostgreSQL, and if runs of package flow that are not over
// would have to move. It returns [honker.ErrInvalid] for a nil DB, for
// a file that is being moved to another schema, for a copy of a file from before its last moved jobs, and for a schema that is in use
// without Options.IntoUsed, and [honker.ErrBusy] if another Run moves the same file.
func Run(ctx context.Context, from, to *honker.DB, opts *Options) (*Report, error) {
	m, err := newMover(from, to, opts)
	if err == nil {
		err = engine.CheckContext(ctx)
	}
	if err == nil {
		err = m.run(ctx)
	}
	return &m.report, engine.Wrap("move", "", err)
}

// mover is a running move.
type mover struct {
	Options
	from, to *engine.Engine // to is nil in a dry run without a target
	source   engine.MoveStore
	target   moves.Moves
	holder   moves.Holder
	report   Report
	late     []string // notes about late events and messages
	waits    bool     // the last pass has left jobs behind because they run, or are linked to jobs that do
}

func newMover(from, to *honker.DB, opts *Options) (*mover, error) {
	m := new(mover)
	o, err := opts.normal()
	if err != nil {
		return m, err
	}
	if from == nil || to == nil && !o.DryRun {
		return m, fmt.Errorf("%w: nil *honker.DB", engine.ErrInvalid)
	}
	m.Options, m.from = o, engine.Of(from)
	if m.source = m.from.Stores.Moves; m.source == nil {
		return m, fmt.Errorf("%w: a move leads from a file to PostgreSQL, and %s is not a file", engine.ErrUnsupported, m.from.Backend.Name())
	}
	if to == nil {
		return m, nil
	}
	m.to = engine.Of(to)
	b, ok := m.to.Backend.(*pgbackend.Backend)
	if !ok {
		return m, fmt.Errorf("%w: a move leads from a file to PostgreSQL, and %s is not a PostgreSQL database", engine.ErrUnsupported, m.to.Backend.Name())
	}
	m.target = moves.Moves{Schema: b.SchemaName()}
	return m, nil
}

func (m *mover) run(ctx context.Context) error {
	if err := m.refuseRuns(ctx); err != nil {
		return err
	}
	if m.DryRun {
		return m.dryRun(ctx)
	}
	if err := errors.Join(m.from.Writable(), m.to.Writable()); err != nil {
		return err
	}
	if err := m.begin(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var beats sync.WaitGroup
	beats.Go(func() { m.beat(ctx, cancel) })
	err := m.passes(ctx)
	if cause := context.Cause(ctx); cause != nil && errors.Is(err, context.Canceled) {
		err = cause
	}
	cancel(nil)
	beats.Wait()
	end := m.write(context.WithoutCancel(ctx), m.to, func(ctx context.Context, q engine.Querier, now time.Time) error {
		return m.target.End(ctx, q, m.holder, now)
	})
	return errors.Join(err, end)
}

// refuseRuns returns ErrUnsupported if the queues to move have jobs of package flow's runs. The steps of a run do not move,
// so the target would run them again.
func (m *mover) refuseRuns(ctx context.Context) error {
	flows := []string{""} // all
	if m.Queues != nil {
		flows = nil
		for _, q := range m.Queues {
			if name, ok := strings.CutPrefix(q, flow.QueuePrefix); ok {
				flows = append(flows, name)
			}
		}
	}
	return m.from.Read(ctx, func(ctx context.Context, q engine.Querier) error {
		for _, name := range flows {
			for _, state := range []row.FlowState{row.FlowIsWaiting, row.FlowIsRunning, row.FlowIsFailed} {
				runs, err := m.from.Stores.Flows.List(ctx, q, row.FlowFilter{Flow: name, State: state, Before: math.MaxInt64, Limit: 1}, m.from.Now())
				if err != nil {
					return err
				}
				if len(runs) > 0 {
					return fmt.Errorf("%w: run %q of flow %q is %s, and runs cannot be moved: let it end in the file or discard it, and move the other queues with Options.Queues meanwhile",
						engine.ErrUnsupported, runs[0].ID, runs[0].Flow, state)
				}
			}
		}
		return nil
	})
}

// write runs f in a transaction. It may run again after an uncertain commit: each step of a move can be repeated.
func (m *mover) write(ctx context.Context, e *engine.Engine, f engine.OpFunc) error {
	return e.Write(ctx, "", step{f})
}

type step struct{ engine.OpFunc }

// Again implements engine.Fenced.
func (step) Again() {}

// origin describes the file, and checks that it may move to the target.
func (m *mover) origin(ctx context.Context) (s row.MoveSource, err error) {
	var goal, target string
	err = m.from.Read(ctx, func(ctx context.Context, q engine.Querier) (err error) {
		s, goal, err = m.source.Origin(ctx, q)
		return err
	})
	var begun, used bool
	if err == nil && m.to != nil {
		err = m.to.Read(ctx, func(ctx context.Context, q engine.Querier) (err error) {
			if target, err = m.target.Target(ctx, q); err == nil {
				begun, used, err = m.target.Fits(ctx, q, s.ID)
			}
			return err
		})
	}
	switch {
	case err != nil:
		return s, err
	case goal != "" && goal != target:
		return s, fmt.Errorf("%w: the file is being moved to another database or schema; go on with that one", engine.ErrInvalid)
	case used && !begun && !m.IntoUsed:
		return s, fmt.Errorf("%w: the schema has jobs or events of its own: begin the move before programs use it, or allow a "+
			"schema that is in use, where moved jobs get other IDs", engine.ErrInvalid)
	}
	return s, nil
}

// begin becomes the only mover of the file. It waits for the lease of a mover that has died.
func (m *mover) begin(ctx context.Context) error {
	s, err := m.origin(ctx)
	if err != nil {
		return err
	}
	m.holder = moves.Holder{Token: rand.Text(), Lease: lease}
	if m.holder.Source, err = m.mark(ctx, row.Mover{}); err != nil {
		return err
	}
	s.ID = m.holder.Source
	rereads := 0
	for patience := time.Now().Add(lease + lease/3); ; { // a mover that lives renews its lease in between
		state, target, err := m.hold(ctx, s)
		switch {
		case err != nil:
			return err
		case state == moves.Held:
			_, err = m.mark(ctx, row.Mover{Token: m.holder.Token, Target: target})
			return err
		case state == moves.Older && rereads > 0:
			return fmt.Errorf("%w: jobs of this file have moved that are still in it: it is a copy from before the move; go on with the other file", engine.ErrInvalid)
		case state == moves.Older:
			rereads++ // another mover may have ended since the file was read
		case state == moves.Busy && time.Now().After(patience):
			return fmt.Errorf("%w: another process moves this file", engine.ErrBusy)
		case state == moves.Busy:
			if err := pause(ctx, lease/20); err != nil {
				return err
			}
		}
		if s, err = m.origin(ctx); err != nil { // also explains a schema that is in use
			return err
		}
	}
}

// mark writes a mover into the file, and returns the ID of the file.
func (m *mover) mark(ctx context.Context, is row.Mover) (id string, err error) {
	err = m.write(ctx, m.from, func(ctx context.Context, q engine.Querier, _ time.Time) error {
		s, err := m.source.Begin(ctx, q, is)
		id = s.ID
		return err
	})
	return id, err
}

// hold tries to begin the move in the target, and returns the identity of the target.
func (m *mover) hold(ctx context.Context, s row.MoveSource) (state moves.State, target string, err error) {
	id := rand.Text()
	err = m.write(ctx, m.to, func(ctx context.Context, q engine.Querier, now time.Time) (err error) {
		if state, err = m.target.Begin(ctx, q, m.holder, s, m.IntoUsed, now); err == nil && state == moves.Held {
			target, err = m.target.SetTarget(ctx, q, id)
		}
		return err
	})
	return state, target, err
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return engine.Cause(ctx)
	}
}

// beat prolongs the lease until ctx ends. It cancels the move if another mover has begun.
func (m *mover) beat(ctx context.Context, cancel context.CancelCauseFunc) {
	for pause(ctx, lease/4) == nil {
		err := m.write(ctx, m.to, func(ctx context.Context, q engine.Querier, now time.Time) error {
			return m.target.Hold(ctx, q, m.holder, now)
		})
		if errors.Is(err, moves.ErrLost) {
			cancel(err)
			return
		}
	}
}

// passes repeats passes until nothing is left to do.
func (m *mover) passes(ctx context.Context) error {
	m.Progress(m.report)
	for {
		moved, err := m.pass(ctx)
		if err != nil {
			return err
		}
		m.Progress(m.report)
		if m.Once || !moved && !m.waits && !m.runs() {
			return nil
		}
		if err := pause(ctx, betweenPass); err != nil {
			return err
		}
	}
}

// runs reports whether a job of the selected queues runs in the file.
func (m *mover) runs() bool {
	return slices.ContainsFunc(m.report.Left, func(l Left) bool { return l.Running > 0 })
}

// pass moves all that can be moved now. It returns whether it has moved anything.
func (m *mover) pass(ctx context.Context) (moved bool, err error) {
	before := m.report
	m.report.Notes = nil
	if err := m.arrive(ctx); err != nil {
		return false, err
	}
	for _, part := range []func(context.Context) error{m.settings, m.received, m.reserve, m.topics, m.jobs, m.relays, m.count} {
		if err := part(ctx); err != nil {
			return false, err
		}
	}
	r := &m.report
	r.Passes++
	return r.Jobs > before.Jobs || r.Dead > before.Dead || r.Batches > before.Batches || r.Schedules > before.Schedules || r.Events > before.Events ||
		r.Messages > before.Messages || r.Letters > before.Letters, nil
}

// arrive delivers the parcels that an earlier mover has left.
func (m *mover) arrive(ctx context.Context) error {
	for {
		var p row.Parcel
		err := m.from.Read(ctx, func(ctx context.Context, q engine.Querier) (err error) {
			p, err = m.source.Parcel(ctx, q)
			return err
		})
		if err != nil || p.N == 0 {
			return err
		}
		if err := m.deliver(ctx, p); err != nil {
			return err
		}
	}
}

// deliver takes a parcel to the target and then out of the file.
func (m *mover) deliver(ctx context.Context, p row.Parcel) error {
	var a moves.Arrived
	err := m.write(ctx, m.to, func(ctx context.Context, q engine.Querier, now time.Time) (err error) {
		a, err = m.target.TakeIn(ctx, q, m.holder, p, now)
		return err
	})
	if err != nil {
		return err
	}
	for _, queue := range a.Queues {
		m.to.Notifier.Wake(wake.Queue(queue))
	}
	r := &m.report
	r.Messages, r.Letters, r.LateMessages = r.Messages+a.Messages, r.Letters+a.Letters, r.LateMessages+a.Late
	if a.Late > 0 {
		m.late = append(m.late, "relay "+a.Relay+": messages of the file came after messages of the target, and have new IDs")
	}
	if a.Relay != "" {
		m.to.Notifier.Wake(wake.Relay(a.Relay))
	}
	r.Jobs, r.Dead, r.Batches, r.Schedules = r.Jobs+a.Jobs, r.Dead+a.Dead, r.Batches+a.Batches, r.Schedules+a.Schedules
	for _, l := range a.Lost {
		if len(r.Lost) < lostMost {
			r.Lost = append(r.Lost, Lost(l))
		}
	}
	return m.write(ctx, m.from, func(ctx context.Context, q engine.Querier, _ time.Time) error {
		return m.source.Arrived(ctx, q, m.holder.Token, p.N)
	})
}
