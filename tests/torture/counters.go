//go:build unix

package torture

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// Counters is a set of named counters. The zero value is ready to use. It is safe for concurrent
// use.
type Counters struct {
	mu sync.Mutex
	n  map[string]int64
}

// Add adds n to the counter name. Adding 0 makes the counter appear in reports.
func (c *Counters) Add(name string, n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = map[string]int64{}
	}
	c.n[name] += n
}

// Max raises the counter name to n if it is lower.
func (c *Counters) Max(name string, n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = map[string]int64{}
	}
	c.n[name] = max(c.n[name], n)
}

// Set sets the counter name to n.
func (c *Counters) Set(name string, n int64) {
	c.Add(name, n-c.Get(name))
}

// Get returns the value of the counter name.
func (c *Counters) Get(name string) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n[name]
}

// All returns a copy of all counters.
func (c *Counters) All() map[string]int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.n)
}

// String formats all counters on a single line.
func (c *Counters) String() string {
	all := c.All()
	words := make([]string, 0, len(all))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		words = append(words, fmt.Sprintf("%s=%d", name, all[name]))
	}
	return strings.Join(words, " ")
}
