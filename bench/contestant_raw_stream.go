package main

import (
	"context"
	"database/sql"
	"strings"
	"time"
)

const (
	rawEvent  = `INSERT INTO _honker_stream (topic, key, payload, created_at) VALUES `
	rawEvents = `(?, ?, ?, ?)`
	rawScan   = `SELECT offset, topic, key, payload, created_at FROM _honker_stream WHERE topic = ? AND offset > ? ORDER BY offset LIMIT 1000`
	rawSave   = `INSERT INTO _honker_stream_consumers (name, topic, offset) VALUES (?, ?, ?)
ON CONFLICT (name, topic) DO UPDATE SET offset = excluded.offset`
)

func (r *rawQueue) Publish(_ context.Context, n int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stream.exec(rawEvent+rawEvents, "bench", nil, payloadText(n), time.Now().Unix())
}

func (r *rawQueue) PublishBatch(_ context.Context, n int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	args := make([]any, 0, 4*n)
	for i := range n {
		args = append(args, "bench", nil, payloadText(int64(i)), time.Now().Unix())
	}
	return r.stream.exec(rawEvent+strings.TrimSuffix(strings.Repeat(rawEvents+",", n), ","), args...)
}

// Subscribe reads up to a thousand events at a time, saves the offset, and polls every millisecond
// when there are no more. Each subscriber has its own connection.
func (r *rawQueue) Subscribe(ctx context.Context, consumer string, handle func(n int64)) error {
	return r.follow(ctx, func(c *rawConn, after int64) (last int64, err error) {
		last, err = c.scan(after, func(_, n int64) error {
			handle(n)
			return nil
		})
		if err == nil && last > after {
			err = c.exec(rawSave, consumer, "bench", last)
		}
		return last, err
	})
}

// SubscribeAcking saves the offset on a second connection while the first one reads.
func (r *rawQueue) SubscribeAcking(ctx context.Context, consumer string, handle func(n int64)) error {
	acks, err := newRawConn(context.Background(), r.pool)
	if err != nil {
		return err
	}
	defer acks.conn.Close()
	return r.follow(ctx, func(c *rawConn, after int64) (last int64, err error) {
		return c.scan(after, func(offset, n int64) error {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			err := acks.exec(rawSave, consumer, "bench", offset)
			handle(n)
			return err
		})
	})
}

// follow calls page for the events after the last offset that it has returned, until ctx is done.
func (r *rawQueue) follow(ctx context.Context, page func(c *rawConn, after int64) (last int64, err error)) error {
	c, err := newRawConn(context.Background(), r.pool)
	if err != nil {
		return err
	}
	defer c.conn.Close()
	var offset, seen int64
	for ctx.Err() == nil {
		last, err := page(c, offset)
		if err == nil && last == offset {
			seen, err = c.waitForCommit(ctx, seen, time.Millisecond)
		}
		if err != nil {
			return err
		}
		offset = last
	}
	return nil
}

func (c *rawConn) scan(after int64, handle func(offset, n int64) error) (last int64, err error) {
	s, err := c.stmt(rawScan)
	if err != nil {
		return after, err
	}
	rows, err := s.QueryContext(context.Background(), "bench", after)
	if err != nil {
		return after, err
	}
	defer rows.Close()
	for last = after; rows.Next(); {
		n, err := scanRawEvent(rows, &last)
		if err == nil {
			err = handle(last, n)
		}
		if err != nil {
			return after, err
		}
	}
	return last, rows.Err()
}

func scanRawEvent(rows *sql.Rows, offset *int64) (int64, error) {
	var topic string
	var key sql.NullString
	var text []byte
	var created int64
	if err := rows.Scan(offset, &topic, &key, &text, &created); err != nil {
		return 0, err
	}
	return readPayload(text)
}
