package ui

import (
	"sync"
	"time"

	"github.com/honker-go/honker/admin"
)

// sizeCache keeps the last estimate of sizes, because each reads a few hundred pages of the file.
type sizeCache struct {
	mu   sync.Mutex
	at   time.Time
	last *sizes
}

// sizesFor is the time for which an estimate is kept.
const sizesFor = 30 * time.Second

// sizes is an estimate of the sizes of a database. It is empty if the database could not be read.
type sizes struct{ admin.SizeInfo }

// sizes returns the estimated sizes of the database.
func (c *call) sizes() *sizes {
	k := &c.file.sizes
	k.mu.Lock()
	defer k.mu.Unlock()
	if age := c.now.Sub(k.at); k.last == nil || age < 0 || age >= sizesFor {
		k.last, k.at = &sizes{}, c.now
		if s, err := admin.Sizes(c.ctx, c.db); err == nil {
			k.last.SizeInfo = *s
		}
	}
	return k.last
}

// topic returns the bytes of a topic, or 0 if they are unknown.
func (s *sizes) topic(name string) int64 {
	for _, t := range s.Topics {
		if t.Name == name {
			return t.Bytes
		}
	}
	return 0
}
