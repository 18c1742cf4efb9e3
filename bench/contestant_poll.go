package main

import (
	"context"
	"fmt"
	"time"
)

// pollers work like a binding without wake-ups: a loop polls data_version and queries each queue
// after a change. The query is a read, so that a fruitless poll does not lock out writers.
func pollers() []Contestant {
	return []Contestant{poller(time.Millisecond), poller(5 * time.Millisecond)}
}

func poller(interval time.Duration) Contestant {
	return Contestant{
		Name:  fmt.Sprintf("poll %d ms", interval.Milliseconds()),
		About: fmt.Sprintf("raw, one loop that reads data_version every %v and asks about its queues when it has moved", interval),
		Best:  1,
		Poll:  interval,
		Open: func(ctx context.Context, path string, d Durability) (Queue, error) {
			r, err := openRaw(ctx, path, d)
			return &pollQueue{r, interval}, err
		},
	}
}

type pollQueue struct {
	*rawQueue
	interval time.Duration
}

const pollPending = `SELECT EXISTS (SELECT 1 FROM _honker_live INDEXED BY _honkerx_live_pending WHERE queue = ? AND state = 'pending')`

// Work takes all waiting jobs whenever the file has changed.
func (p *pollQueue) Work(ctx context.Context, _ int, handle func(n int64)) error {
	return p.poll(ctx, []string{"bench"}, func() error {
		jobs, err := p.turn(nil, 128)
		var ids []int64
		for _, j := range jobs {
			handle(j.n)
			ids = append(ids, j.id)
		}
		if err != nil || len(ids) == 0 {
			return err
		}
		return p.work.exec(rawAck, jsonIDs(ids), time.Now().Unix())
	})
}

// Idle polls queues that never have a job.
func (p *pollQueue) Idle(ctx context.Context, queues, _ int) error {
	names := make([]string, queues)
	for i := range names {
		names[i] = idleQueue(i)
	}
	return p.poll(ctx, names, func() error { return fmt.Errorf("a queue that has no jobs has one") })
}

// poll calls found after each commit of another connection, if a queue has jobs.
func (p *pollQueue) poll(ctx context.Context, queues []string, found func() error) error {
	for seen := int64(0); ctx.Err() == nil; {
		for _, name := range queues {
			has, err := p.pending(name)
			if err == nil && has {
				err = found()
			}
			if err != nil {
				return err
			}
		}
		var err error
		if seen, err = p.work.waitForCommit(ctx, seen, p.interval); err != nil {
			return err
		}
	}
	return nil
}

func (p *pollQueue) pending(queue string) (has bool, err error) {
	s, err := p.work.stmt(pollPending)
	if err == nil {
		err = s.QueryRowContext(context.Background(), queue).Scan(&has)
	}
	return has, err
}
