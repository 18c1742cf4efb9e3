package admin

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/wake"
)

// RelayPartition describes a relay queue partition that is currently unavailable, either because a Run
// holds it or because it is backing off after a failure.
type RelayPartition struct {
	Family     string // see relay.Options; "" if none
	Queue      string
	Partition  int
	Owner      string    // the running relay.Relay.Run that holds the partition; "" if none
	Epoch      int64     // number of times the partition was taken
	LeaseUntil time.Time // when the lease ends unless progress is saved; zero if the partition is not held
	RetryAt    time.Time // time of the next attempt after a failure; zero if the partition is not backing off
	Attempts   int64     // attempts to handle its first message
	LastError  string    // error of the last failure; "" if there is none
}

// RelayPartitions returns the partitions of all relays that are held by a process or backing off after a
// failure, sorted by family, queue and partition. A time in the far future indicates that a process's
// clock was ahead; see [BreakRelayPartition]. RelayPartitions never waits for the writer. It returns
// [honker.ErrInvalid] if db is nil.
func RelayPartitions(ctx context.Context, db *honker.DB) ([]RelayPartition, error) {
	var all []RelayPartition
	err := read(ctx, db, func(ctx context.Context, q engine.Querier, s *engine.Stores) error {
		now := clock(db)
		rows, err := s.Relays.Blocked(ctx, q, now)
		for _, row := range rows {
			all = append(all, relayPartitionOf(row, now))
		}
		return err
	})
	if err != nil {
		return nil, engine.Wrap("list relay partitions", "", err)
	}
	return all, nil
}

func relayPartitionOf(row row.RelayBlocked, now time.Time) RelayPartition {
	p := RelayPartition{
		Family: row.Family, Queue: row.Queue, Partition: int(row.Partition), Owner: row.Owner, Epoch: row.Epoch,
		LeaseUntil: row.LeaseUntil, Attempts: row.Attempts, LastError: row.LastError,
	}
	if row.RetryAt.After(now) {
		p.RetryAt = row.RetryAt
	}
	return p
}

// BreakRelayPartition ends a partition's lease and backoff, and reports whether it did. It does nothing
// if the partition has been acquired since [RelayPartitions] returned p. Only Family, Queue, Partition
// and Epoch of p are used. The next Run acquires the partition immediately. Attempts and LastError are
// kept.
//
// Break a lease only if its process has died or is hung. A live process continues with its current
// message while a new process starts on the same message, and the old process can't save its progress.
//
// BreakRelayPartition waits for the writer until ctx ends. It returns [honker.ErrInvalid] if the name is
// invalid, if Partition is negative, or if db is nil.
func BreakRelayPartition(ctx context.Context, db *honker.DB, p RelayPartition) (broken bool, err error) {
	e, err := engineOf(db)
	err = errors.Join(err, engine.CheckName("queue", p.Queue))
	if p.Partition < 0 {
		err = errors.Join(err, fmt.Errorf("%w: Partition must not be negative, but is %d", honker.ErrInvalid, p.Partition))
	}
	if err != nil {
		return false, engine.Wrap("break relay partition", p.Queue, err)
	}
	target := []string{"relay queue", p.Queue, "partition", strconv.Itoa(p.Partition)}
	if p.Family != "" {
		target = append(target, "family", p.Family)
	}
	audit := e.NewAudit(ctx, "break relay partition", engine.AuditTarget(target...))
	err = e.Write(ctx, "", engine.OpFunc(func(ctx context.Context, q engine.Querier, now time.Time) error {
		broken = false
		partition := row.RelayPartition{Queue: p.Queue, Partition: int64(p.Partition)}
		if broken, err = e.Stores.Relays.Break(ctx, q, p.Family, partition, p.Epoch, now); err != nil || !broken {
			return err
		}
		return audit.NoteOne(ctx, q, now)
	}))
	if err != nil {
		return false, engine.Wrap("break relay partition", p.Queue, err)
	}
	if broken {
		e.Notifier.Wake(wake.Relay(wake.RelayName(p.Family, p.Queue)))
	}
	return broken, nil
}
