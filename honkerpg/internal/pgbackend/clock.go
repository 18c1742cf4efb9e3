package pgbackend

import (
	"context"
	"sync"
	"time"

	"github.com/honker-go/honker/honkerpg/internal/pgstore"
	"github.com/honker-go/honker/internal/row"
)

// clock shows the time of the server, so that processes on machines with different clocks agree on leases and due
// times. It follows the process's monotonic clock from the last reading, so a change of the local time has no effect.
type clock struct {
	isLocal bool // shows the time of the process instead

	mu     sync.Mutex
	server time.Time // time of the server at the last reading
	local  time.Time // when that was, with a monotonic reading
}

// readings is the number of times that a clock asks the server. The fastest answer is the most exact.
const readings = 3

// clockLife is the time after which a clock is read again, because two clocks drift apart.
const clockLife = time.Minute

// set asks the server for its time. The answer is taken as the time in the middle of the round trip.
func (c *clock) set(ctx context.Context, q row.Querier) error {
	if c.isLocal {
		return nil
	}
	var server, local time.Time
	best := time.Duration(1<<63 - 1)
	for range readings {
		asked := time.Now()
		at, err := pgstore.ServerTime(ctx, q)
		if err != nil {
			return err
		}
		if trip := time.Since(asked); trip < best {
			server, local, best = at, asked.Add(trip/2), trip
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.server, c.local = server, local
	return nil
}

// now returns the time of the server.
func (c *clock) now() time.Time {
	if c.isLocal {
		return time.Now()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.server.Add(time.Since(c.local))
}

// old reports whether the clock should be read again.
func (c *clock) old() bool {
	if c.isLocal {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Since(c.local) > clockLife
}
