package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/store"
	"github.com/honker-go/honker/internal/wake"
)

// RelayPartition is a partition of a relay's queue that no process can take now: a Run holds it, or
// it waits after a failure.
type RelayPartition struct {
	Family     string // see relay.Options; "": none
	Queue      string
	Partition  int
	Owner      string    // the running relay.Relay.Run that holds it; "": none
	Epoch      int64     // how often the partition was taken
	LeaseUntil time.Time // unless its progress is saved before; zero: nothing holds it
	RetryAt    time.Time // until then it waits after a failure; zero: it does not
	Attempts   int64     // of its first message
	LastError  string    // why it failed the last time; "": it did not
}

// relayStore are the statements about the partitions of one family.
type relayStore interface {
	Blocked(ctx context.Context, q engine.Querier, nowMS int64) ([]row.RelayPartitionInfo, error)
	Break(ctx context.Context, q engine.Querier, p row.RelayPartition, epoch, nowMS int64) (bool, error)
}

func relaysOf(family string) relayStore { return store.Relays{Family: family} }

// RelayPartitions returns the partitions of all relays that are held by a process or wait after a
// failure, by family, queue and partition. A time in the far future was left by a process with a
// clock that was ahead: see [BreakRelayPartition]. It never waits for the writer. nil as the DB is
// [honker.ErrInvalid].
func RelayPartitions(ctx context.Context, db *honker.DB) ([]RelayPartition, error) {
	var all []RelayPartition
	err := read(ctx, db, func(ctx context.Context, q engine.Querier) error {
		now := time.Now().UnixMilli()
		families, err := store.RelayFamilies(ctx, q)
		for _, family := range families {
			rows, err := relaysOf(family).Blocked(ctx, q, now)
			if err != nil {
				return err
			}
			for _, row := range rows {
				all = append(all, relayPartitionOf(family, row, now))
			}
		}
		return err
	})
	if err != nil {
		return nil, engine.Wrap("list relay partitions", "", err)
	}
	return all, nil
}

func relayPartitionOf(family string, row row.RelayPartitionInfo, nowMS int64) RelayPartition {
	p := RelayPartition{
		Family: family, Queue: row.Queue, Partition: int(row.Partition), Owner: row.Owner, Epoch: row.Epoch,
		LeaseUntil: engine.InstantMS(row.LeaseUntilMS), Attempts: row.Attempts, LastError: row.LastError,
	}
	if row.RetryMS > nowMS {
		p.RetryAt = engine.InstantMS(row.RetryMS)
	}
	return p
}

// BreakRelayPartition ends the lease of a partition and its pause after a failure, if it was not taken
// since [RelayPartitions] has shown p, and reports whether that was so: of p the Family, Queue,
// Partition and Epoch count. The next Run takes the partition at once. Break the lease of a process
// that is gone or hangs: one that lives goes on with its message, beside the process that takes over,
// and its progress is not saved. Attempts and LastError stay.
//
// It waits for the writer, until ctx ends. A bad name, a negative Partition, or nil as the DB, is
// [honker.ErrInvalid].
func BreakRelayPartition(ctx context.Context, db *honker.DB, p RelayPartition) (broken bool, err error) {
	e, err := engineOf(db)
	err = errors.Join(err, engine.CheckName("queue", p.Queue))
	if p.Partition < 0 {
		err = errors.Join(err, fmt.Errorf("%w: negative Partition %d", honker.ErrInvalid, p.Partition))
	}
	if err != nil {
		return false, engine.Wrap("break relay partition", p.Queue, err)
	}
	target := []string{"relay queue", p.Queue, "partition", strconv.Itoa(p.Partition)}
	if p.Family != "" {
		target = append(target, "family", p.Family)
	}
	audit := engine.NewAudit(ctx, "break relay partition", engine.AuditTarget(target...))
	err = e.Write(ctx, "", engine.OpFunc(func(ctx context.Context, q engine.Querier, now time.Time) error {
		broken = false
		families, err := store.RelayFamilies(ctx, q)
		if err != nil || !slices.Contains(families, p.Family) {
			return err
		}
		partition := row.RelayPartition{Queue: p.Queue, Partition: int64(p.Partition)}
		if broken, err = relaysOf(p.Family).Break(ctx, q, partition, p.Epoch, now.UnixMilli()); err != nil || !broken {
			return err
		}
		return audit.NoteOne(ctx, q, now)
	}))
	if err != nil {
		return false, engine.Wrap("break relay partition", p.Queue, err)
	}
	if broken {
		e.Notifier.Wake(wake.Change{Kind: wake.RelayReady, Name: wake.RelayName(p.Family, p.Queue)})
	}
	return broken, nil
}
