//go:build unix

package torture

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// Counters say what happened how often. The zero value counts.
type Counters struct {
	mu sync.Mutex
	n  map[string]int64
}

// Add counts n more of name; with 0, that there were none.
func (c *Counters) Add(name string, n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = map[string]int64{}
	}
	c.n[name] += n
}

// Max keeps the largest n of name.
func (c *Counters) Max(name string, n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = map[string]int64{}
	}
	c.n[name] = max(c.n[name], n)
}

// Set replaces the count of name.
func (c *Counters) Set(name string, n int64) {
	c.Add(name, n-c.Get(name))
}

// Get returns the count of name.
func (c *Counters) Get(name string) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n[name]
}

// All returns a copy of all counts.
func (c *Counters) All() map[string]int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.n)
}

// String is all counts in a line.
func (c *Counters) String() string {
	all := c.All()
	words := make([]string, 0, len(all))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		words = append(words, fmt.Sprintf("%s=%d", name, all[name]))
	}
	return strings.Join(words, " ")
}
