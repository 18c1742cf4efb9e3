package main

import (
	"context"
	"sync"
	"time"

	"github.com/honker-go/honker"
)

// commitCount counts the commits that are seen, of all processes, in each second of the last minute. Those in quick
// succession are seen as one: it is a lower bound, since the file has no number of its commits.
type commitCount struct {
	mu      sync.Mutex
	began   time.Time
	seconds [60]struct{ unix, n int64 }
}

func newCommitCount() *commitCount { return &commitCount{began: time.Now()} }

// follow counts until ctx ends. What else ends the updates is told to all that follow them. The first ticks are those of
// the beginning, and no commits.
func (c *commitCount) follow(ctx context.Context, db *honker.DB) {
	for _, err := range db.Updates(ctx) {
		if now := time.Now(); err == nil && now.Sub(c.began) > betweenFrames {
			c.add(now)
		}
	}
}

func (c *commitCount) add(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := &c.seconds[now.Unix()%60]
	if s.unix != now.Unix() {
		s.unix, s.n = now.Unix(), 0
	}
	s.n++
}

// rate is how many there were a second in the last minute, or since the count began.
func (c *commitCount) rate(now time.Time) float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	var sum int64
	for _, s := range c.seconds {
		if s.unix > now.Unix()-60 {
			sum += s.n
		}
	}
	over := min(time.Minute, max(time.Second, now.Sub(c.began)))
	return float64(sum) / over.Seconds()
}
