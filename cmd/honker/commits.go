package main

import (
	"context"
	"sync"
	"time"

	"github.com/honker-go/honker"
)

// commitCount counts the commits of all processes over the last minute, by the second. The file has no commit counter,
// and commits in quick succession look like a single change, so the count is a lower bound.
type commitCount struct {
	mu      sync.Mutex
	began   time.Time
	seconds [60]struct{ unix, n int64 }
}

func newCommitCount() *commitCount { return &commitCount{began: time.Now()} }

// follow counts until ctx ends. It ignores errors, because everything that follows Updates gets the same error.
// Notifications during the first betweenFrames aren't counted, because they come from the start of Updates and not
// from commits.
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

// rate returns the commits per second over the last minute, or since the count began if that is shorter.
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
