package move

import (
	"context"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// relays moves the relays, unless only some queues or topics are moved. A queue is registered in the target before
// anything of it is closed in the file.
func (m *mover) relays(ctx context.Context) error {
	if m.Queues != nil {
		return nil
	}
	var all []row.MoveRelay
	err := m.from.Read(ctx, func(ctx context.Context, q engine.Querier) (err error) {
		all, err = m.source.Relays(ctx, q, m.from.Now())
		return err
	})
	for _, r := range all {
		if err == nil {
			err = m.relay(ctx, r)
		}
	}
	m.noteLate()
	return err
}

// relay moves a queue. It waits for the handlers of the file, so that after the first pass all of the queue's messages are
// handled in the target.
func (m *mover) relay(ctx context.Context, r row.MoveRelay) error {
	var found int
	err := m.write(ctx, m.to, func(ctx context.Context, q engine.Querier, now time.Time) (err error) {
		found, _, err = m.to.Stores.Relays.Family(r.Family).Register(ctx, q, r.Queue, r.Partitions, now)
		return err
	})
	if err != nil {
		return err
	}
	if found != r.Partitions {
		m.report.note("relay %s/%s is not moved: it has %d partitions in the file and %d in the target; use the number of the file in both",
			r.Family, r.Queue, r.Partitions, found)
		return nil
	}
	for last := time.Now(); ; {
		var p row.Parcel
		var leased int64
		err := m.from.Write(ctx, "", engine.OpFunc(func(ctx context.Context, q engine.Querier, now time.Time) (err error) {
			p, leased, err = m.source.Relay(ctx, q, m.holder.Token, r.Family, r.Queue, parcelSize, now)
			return err
		}))
		switch {
		case err != nil:
			return err
		case p.N != 0:
			err = m.deliver(ctx, p)
		case leased == 0:
			return nil
		default:
			err = pause(ctx, betweenPass/10)
		}
		if err != nil {
			return err
		}
		if time.Since(last) > time.Second {
			m.Progress(m.report)
			last = time.Now()
		}
	}
}
