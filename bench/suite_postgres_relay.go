package main

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/honker-go/honker/dispatch"
	"github.com/honker-go/honker/relay"
)

// Optional parts of contestants on PostgreSQL.
type (
	// MessageSender sends messages with the numbers from 1 in each partition of a relay queue.
	MessageSender interface {
		SendMessages(ctx context.Context, partitions, each int) error
	}
	// DispatchOpener returns a Queue whose jobs go to an actor.
	DispatchOpener interface {
		Dispatch() Queue
	}
)

// postgresDeliverCase measures how fast a backlog of messages is delivered, in the order of each partition.
func postgresDeliverCase(partitions int, d delivery) Case {
	name := fmt.Sprintf("relay, %d partitions, batches of %d", partitions, d.size())
	return Case{Name: name, Durability: Synchronous, Metrics: rate("messages/s"), Turn: func(ctx context.Context, t *Turn) ([]float64, error) {
		q, err := t.fresh(ctx)
		if err != nil {
			return nil, err
		}
		defer q.Close()
		opener, err := as[RelayOpener](q, noRelay)
		if err != nil {
			return nil, err
		}
		sender, err := as[MessageSender](q, noRelay)
		if err != nil {
			return nil, err
		}
		each := t.scaled(postgresBacklog) / partitions
		if err := sender.SendMessages(ctx, partitions, each); err != nil {
			return nil, err
		}
		l := &ledger{last: make([]int64, partitions)}
		r := opener.Relay(partitions)
		perSecond, err := drain(ctx, each*partitions, func(ctx context.Context, handle func(int64)) error {
			return r.Deliver(ctx, d, func(partition int, seq int64, payload []byte) {
				l.deliver(partition, seq, payload)
				handle(seq)
			})
		})
		if err == nil {
			err = l.broken
		}
		return []float64{perSecond}, err
	}}
}

func (h *honkerPostgresQueue) SendMessages(ctx context.Context, partitions, each int) error {
	q := relay.New(h.db, nil).Queue("bench", partitions)
	return inThousands(each, func(first, n int) error {
		for p := range partitions {
			all := make([]relay.Outgoing, n)
			for i := range all {
				all[i] = relay.Outgoing{Partition: p, Payload: []byte(payloadText(int64(first + i)))}
			}
			if _, err := q.Send(ctx, all...); err != nil {
				return err
			}
		}
		return nil
	})
}

// inThousands calls f with the first number and the length of each thousand of the numbers from 1 to n.
func inThousands(n int, f func(first, n int) error) error {
	for at := 0; at < n; at += 1000 {
		if err := f(at+1, min(1000, n-at)); err != nil {
			return err
		}
	}
	return nil
}

// rawPostgresRelay delivers by a loop for each partition, which finishes a batch and reads the next in a single statement.
type rawPostgresRelay struct {
	*rawPostgresQueue
	partitions int
}

const (
	rawRelaySchema = `CREATE TABLE message (partition int NOT NULL, n bigint NOT NULL, payload bytea NOT NULL, PRIMARY KEY (partition, n))`
	rawRelaySend   = `INSERT INTO message (partition, n, payload) SELECT $1, $2 + o - 1, p FROM unnest($3::bytea[]) WITH ORDINALITY u(p, o)`
	rawRelayStep   = `WITH done AS (DELETE FROM message WHERE partition = $1 AND n <= $2)
SELECT n, payload FROM message WHERE partition = $1 AND n > $2 ORDER BY n LIMIT $3`
)

func (r *rawPostgresQueue) SendMessages(ctx context.Context, partitions, each int) error {
	if _, err := r.pool.Exec(ctx, rawRelaySchema); err != nil {
		return err
	}
	return inThousands(each, func(first, n int) error {
		all := make([][]byte, n)
		for i := range all {
			all[i] = []byte(payloadText(int64(first + i)))
		}
		for p := range partitions {
			if _, err := r.pool.Exec(ctx, rawRelaySend, p, first, all); err != nil {
				return err
			}
		}
		return nil
	})
}

func (r *rawPostgresQueue) Relay(partitions int) Relayer { return &rawPostgresRelay{r, partitions} }

func (r *rawPostgresRelay) Send(context.Context, int, int64) error {
	return fmt.Errorf("%w: sends many messages only", errNA)
}

func (r *rawPostgresRelay) SendOrder(ctx context.Context, n int64) error { return r.Send(ctx, 0, n) }

func (r *rawPostgresRelay) Deliver(ctx context.Context, d delivery, handle handleFunc) error {
	return each(r.partitions, func(partition int) error {
		for done := int64(0); ctx.Err() == nil; {
			rows, err := r.pool.Query(context.WithoutCancel(ctx), rawRelayStep, partition, done, d.size())
			if err != nil {
				return err
			}
			var n int64
			var payload []byte
			read, err := pgx.ForEachRow(rows, []any{&n, &payload}, func() error {
				handle(partition, n, payload)
				done = n
				return nil
			})
			if err != nil {
				return err
			}
			if read.RowsAffected() == 0 {
				r.rest(ctx)
			}
		}
		return nil
	})
}

// postgresDispatchCase measures when the actor of a process starts a job.
func postgresDispatchCase() Case {
	metrics := []Metric{{"commit to start p50", "ms", false}, {"commit to start p99", "ms", false}, {"samples", "", true}}
	return Case{Name: "dispatch, start", Durability: Synchronous, Metrics: metrics, Turn: func(ctx context.Context, t *Turn) ([]float64, error) {
		q, err := t.fresh(ctx)
		if err != nil {
			return nil, err
		}
		defer q.Close()
		opener, err := as[DispatchOpener](q, "has no dispatch")
		if err != nil {
			return nil, err
		}
		jobs := opener.Dispatch()
		w, err := startWaker(ctx, t, jobs, "", 1)
		if err != nil {
			return nil, err
		}
		_, commit, err := starts(ctx, t, jobs, w)
		if stopped := w.stop(); err == nil {
			err = stopped
		}
		if err != nil {
			return nil, err
		}
		return []float64{quantile(commit, 0.5), quantile(commit, 0.99), float64(len(commit))}, nil
	}}
}

// Dispatch returns the queue itself: there is nothing to dispatch to but its loop.
func (r *rawPostgresQueue) Dispatch() Queue { return r }

func (h *honkerPostgresQueue) Dispatch() Queue {
	return &dispatchQueue{Queue: h, d: dispatch.New(h.db, nil)}
}

// dispatchQueue sends its jobs to an actor.
type dispatchQueue struct {
	Queue
	d *dispatch.Dispatcher
}

func (q *dispatchQueue) Enqueue(ctx context.Context, n int64) error {
	_, err := q.d.Send(ctx, dispatch.Target{Type: "bench"}, newPayload(n))
	return err
}

func (q *dispatchQueue) Work(ctx context.Context, workers int, handle func(n int64)) error {
	id := dispatch.Identity{Type: "bench", Instance: "1"}
	return dispatch.NewActor(q.d, id, func(_ context.Context, t *dispatch.Task[payload]) (any, error) {
		handle(t.Args.N)
		return nil, nil
	}, &dispatch.ActorOptions{Workers: workers}).Run(ctx)
}
