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

// RelayPartition describes a partition of a relay queue that no process can take now. Either a Run holds
// it, or it is waiting after a failure.
type RelayPartition struct {
	Family     string // see relay.Options; "" if none
	Queue      string
	Partition  int
	Owner      string    // the running relay.Relay.Run that holds the partition; "" if none
	Epoch      int64     // number of times the partition was taken
	LeaseUntil time.Time // end of the lease unless progress is saved; zero if nothing holds the partition
	RetryAt    time.Time // time of the next try after a failure; zero if the partition does not wait
	Attempts   int64     // attempts of its first message
	LastError  string    // error of the last failure; "" if there is none
}

// RelayPartitions returns the partitions of all relays that a process holds or that wait after a failure,
// by family, queue and partition. A time in the far future was written by a process whose clock was ahead;
// see [BreakRelayPartition]. RelayPartitions never waits for the writer. It returns [honker.ErrInvalid] if
// db is nil.
func RelayPartitions(ctx context.Context, db *honker.DB) ([]RelayPartition, error) {
	var all []RelayPartition
	err := read(ctx, db, func(ctx context.Context, q engine.Querier, s *engine.Stores) error {
		now := time.Now()
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

// BreakRelayPartition ends the lease of a partition and its wait after a failure, and reports whether it
// did. It does nothing if the partition has been taken since [RelayPartitions] returned p. Only Family,
// Queue, Partition and Epoch of p are used. The next Run takes the partition at once. Attempts and
// LastError are kept.
//
// Break a lease only if its process has died or hangs. A live process continues with its message at the
// same time as the new process, and its progress is not saved.
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
