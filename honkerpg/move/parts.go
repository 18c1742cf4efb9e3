package move

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// jobs moves the jobs, batches and schedules that may be moved.
func (m *mover) jobs(ctx context.Context) error {
	w := row.MoveWalk{Queues: m.Queues, Limit: parcelSize, Deferred: map[int64]row.MoveDefer{}}
	for last := time.Now(); w.Stage != row.MoveOver; {
		var p row.Parcel
		var after row.MoveWalk
		err := m.from.Write(ctx, "", engine.OpFunc(func(ctx context.Context, q engine.Querier, now time.Time) (err error) {
			p, after, err = m.source.Take(ctx, q, m.holder.Token, w, now)
			return err
		}))
		if err != nil {
			return err
		}
		w = after
		if p.N != 0 {
			if err := m.deliver(ctx, p); err != nil {
				return err
			}
		}
		if time.Since(last) > time.Second {
			m.Progress(m.report)
			last = time.Now()
		}
	}
	m.waits = slices.Contains(slices.Collect(maps.Values(w.Deferred)), row.MoveRuns)
	m.explain(w.Deferred)
	return nil
}

// explain notes why jobs stay in the file.
func (m *mover) explain(deferred map[int64]row.MoveDefer) {
	var n [5]int64
	for id, why := range deferred {
		if id > 0 {
			n[why]++
		}
	}
	if k := n[row.MoveUnlisted]; k > 0 {
		m.report.note("%d jobs are linked to jobs of queues that are not moved: move these queues together", k)
	}
	if k := n[row.MoveReply]; k > 0 {
		m.report.note("%d replies to callers of package dispatch stay: results are not moved", k)
	}
	if k := n[row.MoveText]; k > 0 {
		m.report.note("%d jobs have text that is not UTF-8 or has a zero byte, or are linked to such jobs: PostgreSQL cannot hold them", k)
	}
}

// settings copies pauses, limits and retentions, in the first pass.
func (m *mover) settings(ctx context.Context) error {
	if m.report.Passes > 0 {
		return nil
	}
	var text string
	err := m.from.Read(ctx, func(ctx context.Context, q engine.Querier) (err error) {
		text, err = m.source.Settings(ctx, q, m.Queues, m.Topics)
		return err
	})
	if err != nil {
		return err
	}
	return m.write(ctx, m.to, func(ctx context.Context, q engine.Querier, _ time.Time) error { return m.target.Settings(ctx, q, text) })
}

// part reads the part of a list that follows after.
type part func(ctx context.Context, q engine.Querier, after [2]string, limit int, now time.Time) (row.MovePart, error)

// parts passes a list of the file to put, in parts.
func (m *mover) parts(ctx context.Context, read part, put func(ctx context.Context, q engine.Querier, text string, now time.Time) error) error {
	var after [2]string
	for {
		var p row.MovePart
		err := m.from.Read(ctx, func(ctx context.Context, q engine.Querier) (err error) {
			p, err = read(ctx, q, after, eventsSize, m.from.Now())
			return err
		})
		if err != nil || p.N == 0 {
			return err
		}
		err = m.write(ctx, m.to, func(ctx context.Context, q engine.Querier, now time.Time) error { return put(ctx, q, p.Text, now) })
		if err != nil {
			return err
		}
		after = p.After
	}
}

// received copies the receipts of package inbox. They are few compared with their messages, and a pass copies all: a
// message that was received in the file must not be received again.
func (m *mover) received(ctx context.Context) error {
	return m.parts(ctx, m.source.Received, func(ctx context.Context, q engine.Querier, text string, _ time.Time) error {
		return m.target.Received(ctx, q, text)
	})
}

// reserve takes the unique keys of the file in the target for a while.
func (m *mover) reserve(ctx context.Context) error {
	until := m.to.Now().Add(reserveFor)
	err := m.parts(ctx, m.source.Unique, func(ctx context.Context, q engine.Querier, text string, now time.Time) error {
		return m.target.Reserve(ctx, q, m.holder, text, until, now)
	})
	if err != nil {
		return err
	}
	return m.write(ctx, m.to, func(ctx context.Context, q engine.Querier, _ time.Time) error {
		return m.target.Free(ctx, q, m.holder, until)
	})
}

// topics copies new events, and then the places of the readers, who have read no others.
func (m *mover) topics(ctx context.Context) error {
	var all []row.MoveTopic
	err := m.from.Read(ctx, func(ctx context.Context, q engine.Querier) (err error) {
		all, err = m.source.Topics(ctx, q)
		return err
	})
	if err != nil {
		return err
	}
	for _, t := range all {
		if m.Topics != nil && !slices.Contains(m.Topics, t.Topic) {
			continue
		}
		if err := m.topic(ctx, t); err != nil {
			return err
		}
	}
	m.noteLate()
	var readers string
	err = m.from.Read(ctx, func(ctx context.Context, q engine.Querier) (err error) {
		readers, err = m.source.Readers(ctx, q, m.Topics)
		return err
	})
	if err != nil {
		return err
	}
	var own []string
	err = m.write(ctx, m.to, func(ctx context.Context, q engine.Querier, now time.Time) (err error) {
		own, err = m.target.Readers(ctx, q, m.holder, readers, now)
		return err
	})
	for _, name := range own {
		m.report.note("%s has moved on in the target, so its place in the file is not copied any more", name)
	}
	return err
}

// noteLate repeats the notes of earlier passes, because each pass has its own notes.
func (m *mover) noteLate() {
	for _, text := range m.late {
		m.report.note("%s", text)
	}
}

// topic copies the new events of a topic.
func (m *mover) topic(ctx context.Context, t row.MoveTopic) error {
	var after int64
	err := m.to.Read(ctx, func(ctx context.Context, q engine.Querier) (err error) {
		after, err = m.target.Through(ctx, q, m.holder.Source, t.Topic)
		return err
	})
	for err == nil && after < t.Last {
		var p row.MovePart
		err = m.from.Read(ctx, func(ctx context.Context, q engine.Querier) (err error) {
			p, err = m.source.Events(ctx, q, t.Topic, after, eventsSize)
			return err
		})
		if err != nil || p.N == 0 {
			return err
		}
		var late int64
		err = m.write(ctx, m.to, func(ctx context.Context, q engine.Querier, now time.Time) (err error) {
			late, err = m.target.Events(ctx, q, m.holder, t.Topic, p, now)
			return err
		})
		if err != nil {
			return err
		}
		after = p.Last
		m.report.Events, m.report.Late = m.report.Events+int64(p.N), m.report.Late+late
		if late > 0 {
			m.late = append(m.late, "topic "+t.Topic+": events of the file came after events of the target, and have new offsets")
		}
	}
	return err
}

// count reports the jobs left in the file.
func (m *mover) count(ctx context.Context) error {
	var left []row.MoveQueue
	var relays []row.MoveRelay
	err := m.from.Read(ctx, func(ctx context.Context, q engine.Querier) (err error) {
		if left, err = m.source.Left(ctx, q, m.from.Now()); err == nil {
			relays, err = m.source.Relays(ctx, q, m.from.Now())
		}
		return err
	})
	if err != nil {
		return err
	}
	m.report.Left = nil
	for _, l := range left {
		if m.Queues != nil && !slices.Contains(m.Queues, l.Queue) {
			continue
		}
		m.report.Left = append(m.report.Left, Left{Queue: l.Queue, Waiting: l.Waiting, Running: l.Running, Dead: l.Dead, Done: l.Done, Schedules: l.Schedules})
	}
	m.report.Relays = nil
	for _, l := range relays {
		if m.Queues == nil {
			m.report.Relays = append(m.report.Relays, LeftRelay{Family: l.Family, Queue: l.Queue, Waiting: l.Waiting, Leased: l.Leased, Dead: l.Dead})
		}
	}
	return nil
}

// dryRun counts the jobs and events in the file.
func (m *mover) dryRun(ctx context.Context) error {
	if _, err := m.origin(ctx); err != nil {
		return err
	}
	if err := m.count(ctx); err != nil {
		return err
	}
	for _, l := range m.report.Left {
		m.report.Jobs, m.report.Dead, m.report.Schedules = m.report.Jobs+l.Waiting, m.report.Dead+l.Dead, m.report.Schedules+l.Schedules
	}
	for _, l := range m.report.Relays {
		m.report.Messages, m.report.Letters = m.report.Messages+l.Waiting, m.report.Letters+l.Dead
	}
	return m.from.Read(ctx, func(ctx context.Context, q engine.Querier) error {
		topics, err := m.source.Topics(ctx, q)
		for _, t := range topics {
			if m.Topics == nil || slices.Contains(m.Topics, t.Topic) {
				m.report.Events += t.Count
			}
		}
		return err
	})
}
