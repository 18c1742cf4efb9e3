package relays

import (
	"context"
	"database/sql"
	"time"

	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/internal/row"
)

// pageBytes limits the payloads of a batch and of a page.
const pageBytes = 1 << 20

// names returns the names of queues.
func names(queues []row.RelayQueue) []string {
	all := make([]string, len(queues))
	for i, q := range queues {
		all[i] = q.Name
	}
	return all
}

// columns returns the queues and numbers of partitions.
func columns(partitions []row.RelayPartition) (queues []string, numbers []int64) {
	queues, numbers = make([]string, len(partitions)), make([]int64, len(partitions))
	for i, p := range partitions {
		queues[i], numbers[i] = p.Queue, p.Partition
	}
	return queues, numbers
}

const sqlTake = `SELECT queue_, partition_, epoch_, attempts_, processed_, cursor_, failing, id_, key_, type_, payload_, created_
FROM honker.relay_take($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)`

// Take implements engine.RelayStore. It sees only messages that have a number. If there are none, messages of
// applications' transactions get their numbers after the op.
func (s Relays) Take(ctx context.Context, q row.Querier, w row.RelayWanted, owner string, now time.Time) (b row.RelayBatch, found bool, err error) {
	leases, batches := make([]int64, len(w.Queues)), make([]int64, len(w.Queues))
	for i, queue := range w.Queues {
		leases[i] = int64((queue.Lease + time.Millisecond - 1) / time.Millisecond)
		batches[i] = int64(queue.Batch)
	}
	sized, sizes := make([]row.RelayPartition, len(w.Sizes)), make([]int64, len(w.Sizes))
	for i, size := range w.Sizes {
		sized[i], sizes[i] = size.RelayPartition, int64(size.Messages)
	}
	exceptQueues, exceptPartitions := columns(w.Except)
	sizedQueues, sizedPartitions := columns(sized)
	t := &b.RelayTaken
	err = pgsql.Each(ctx, q, s.SQL(sqlTake), func(r *sql.Rows) error {
		var epoch, attempts, processed, cursor, id sql.NullInt64
		var key, kind sql.NullString
		var failing sql.NullBool
		var created sql.NullTime
		m := row.RelayMessage{}
		err := r.Scan(&t.Queue, &t.Partition, &epoch, &attempts, &processed, &cursor, &failing, &id, &key, &kind, &m.Payload, &created)
		found = epoch.Valid
		t.Epoch, t.Attempts, t.Processed, t.Cursor, t.Failing = epoch.Int64, attempts.Int64, processed.Int64, cursor.Int64, failing.Bool
		if err != nil || !id.Valid {
			return err
		}
		m.ID, m.Partition, m.Key, m.Type, m.CreatedAt = id.Int64, t.Partition, key.String, kind.String, pgsql.Instant(created)
		b.Messages = append(b.Messages, m)
		return nil
	}, s.family, names(w.Queues), leases, batches, exceptQueues, exceptPartitions, sizedQueues, sizedPartitions, sizes, w.Healthy, owner, milli(now), pageBytes)
	if err != nil {
		return row.RelayBatch{}, false, err
	}
	if !found {
		pgsql.Leave(q, pgsql.Number)
		return row.RelayBatch{Busy: t.RelayPartition}, false, nil
	}
	t.Owner = owner
	b.Size = w.Size(t)
	if len(b.Messages) == 0 {
		err = row.ErrStuck
	}
	return b, true, err
}

const sqlAwait = `SELECT FROM honker.relay_partition WHERE family = $1 AND queue = $2 AND partition = $3 FOR SHARE`

// Await implements engine.RelayStore.
func (s Relays) Await(ctx context.Context, q row.Querier, p row.RelayPartition) error {
	_, err := q.ExecContext(ctx, s.SQL(sqlAwait), s.family, p.Queue, p.Partition)
	return err
}

const sqlSave = `SELECT honker.relay_save($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)`

// Save implements engine.RelayStore.
func (s Relays) Save(ctx context.Context, q row.Querier, l row.RelayLease, p row.RelayProgress, now time.Time) (held bool, err error) {
	ids, seqs, attempts := make([]int64, len(p.Dead)), make([]int64, len(p.Dead)), make([]int64, len(p.Dead))
	reasons := make([]string, len(p.Dead))
	for i, d := range p.Dead {
		ids[i], seqs[i], attempts[i], reasons[i] = d.ID, d.Seq, d.Attempts, d.Reason
	}
	_, err = pgsql.One(ctx, q, s.SQL(sqlSave), []any{s.family, l.Queue, l.Partition, l.Owner, l.Epoch, p.Finished, p.After, p.Cursor,
		p.Attempts, milliUp(p.RetryAt), p.LastError, ids, seqs, attempts, reasons, milli(now)}, &held)
	if pgsql.Dropped(err) {
		err = row.ErrNotInserted
	}
	return held, err
}

const sqlStates = `SELECT queue, bool_or(ready), min(free_at) FILTER (WHERE free_at > $6)
FROM honker.relay_wanted($1, $2, $3, $4, $5, $6) GROUP BY queue`

// States implements engine.RelayStore.
func (s Relays) States(ctx context.Context, q row.Querier, w row.RelayWanted, now time.Time) (all []row.RelayState, err error) {
	queues, partitions := columns(w.Except)
	err = pgsql.Each(ctx, q, s.SQL(sqlStates), func(r *sql.Rows) error {
		var state row.RelayState
		var next sql.NullTime
		err := r.Scan(&state.Queue, &state.Ready, &next)
		state.Next = pgsql.Instant(next)
		all = append(all, state)
		return err
	}, s.family, names(w.Queues), queues, partitions, w.Healthy, milli(now))
	return all, err
}

// States implements wake.Statements.Relays.
func (s Families) States(ctx context.Context, q row.Querier, family string, w row.RelayWanted, now time.Time) ([]row.RelayState, error) {
	return s.Family(family).States(ctx, q, w, now)
}
