package main

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
)

// A stream on a table with the fewest columns. A number may become visible after a higher one, which the loops below ignore
// because a single publisher numbers one event after the other.
const (
	rawStreamSchema = `CREATE TABLE event (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, topic text NOT NULL, payload text NOT NULL, created_at timestamptz NOT NULL DEFAULT clock_timestamp());
CREATE INDEX event_topic ON event (topic, id);
CREATE TABLE reader (name text PRIMARY KEY, id bigint NOT NULL);`
	rawPublish     = `INSERT INTO event (topic, payload) VALUES ('bench', $1)`
	rawPublishMany = `INSERT INTO event (topic, payload) SELECT 'bench', unnest($1::text[])`
	rawEventsAfter = `SELECT id, payload, created_at FROM event WHERE topic = 'bench' AND id > $1 ORDER BY id LIMIT 1000`
	rawSaveReader  = `INSERT INTO reader (name, id) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET id = excluded.id`
)

func (r *rawPostgresQueue) Publish(ctx context.Context, n int64) error {
	_, err := r.pool.Exec(ctx, rawPublish, payloadText(n))
	return err
}

func (r *rawPostgresQueue) PublishBatch(ctx context.Context, n int) error {
	texts := make([]string, n)
	for i := range texts {
		texts[i] = payloadText(int64(i))
	}
	_, err := r.pool.Exec(ctx, rawPublishMany, texts)
	return err
}

// Subscribe reads up to a thousand events at a time, saves the number of the last one, and polls every millisecond when there
// are no more.
func (r *rawPostgresQueue) Subscribe(ctx context.Context, consumer string, handle func(n int64)) error {
	return r.follow(ctx, func(after int64) (int64, error) {
		last, err := r.page(ctx, after, func(_, n int64) error {
			handle(n)
			return nil
		})
		if err == nil && last > after {
			_, err = r.pool.Exec(ctx, rawSaveReader, consumer, last)
		}
		return last, err
	})
}

// SubscribeAcking saves the number of each event on a second connection while the first one reads a page.
func (r *rawPostgresQueue) SubscribeAcking(ctx context.Context, consumer string, handle func(n int64)) error {
	return r.follow(ctx, func(after int64) (int64, error) {
		return r.page(ctx, after, func(id, n int64) error {
			_, err := r.pool.Exec(ctx, rawSaveReader, consumer, id)
			handle(n)
			return err
		})
	})
}

// follow calls page for the events after the last number that it has returned, until ctx is done.
func (r *rawPostgresQueue) follow(ctx context.Context, page func(after int64) (last int64, err error)) error {
	poll := time.NewTicker(time.Millisecond)
	defer poll.Stop()
	for after := int64(0); ; {
		last, err := page(after)
		if err != nil {
			return err
		}
		if last > after {
			after = last
			continue
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// page handles a page of events and returns the number of the last one.
func (r *rawPostgresQueue) page(ctx context.Context, after int64, handle func(id, n int64) error) (last int64, err error) {
	rows, err := r.pool.Query(ctx, rawEventsAfter, after)
	if err != nil {
		return after, err
	}
	var id int64
	var text []byte
	var created time.Time
	last = after
	_, err = pgx.ForEachRow(rows, []any{&id, &text, &created}, func() error {
		n, err := readPayload(text)
		if err == nil {
			err = handle(id, n)
		}
		last = id
		return err
	})
	return last, err
}

// Pull implements Puller, with a statement for the claim and one for the acks.
func (r *rawPostgresQueue) Pull(ctx context.Context, most, n int, until time.Time) (int, time.Duration, error) {
	return pulled(n, until, func() (int, error) {
		rows, err := r.pool.Query(ctx, rawStep, []int64{}, most)
		if err != nil {
			return 0, err
		}
		jobs, err := pgx.CollectRows(rows, scanRawPostgres)
		ids := make([]int64, len(jobs))
		for i, j := range jobs {
			ids[i] = j.id
		}
		if err == nil && len(ids) == 0 {
			err = errors.New("no job is left")
		}
		if err == nil {
			_, err = r.pool.Exec(ctx, rawDelete, ids)
		}
		return len(ids), err
	})
}

// Iterate implements Puller.
func (r *rawPostgresQueue) Iterate(ctx context.Context, n int, until time.Time) (int, time.Duration, error) {
	return r.Pull(ctx, 1, n, until)
}
