package honker

import (
	"sync"
	"time"
)

// sightings remember which locks were held when this process saw them last. A lock that
// should be held is looked at before a write is tried: a write takes its turn among all
// writers, and a read does not. One that should be free is spared the look.
type sightings struct {
	mu    sync.Mutex
	until map[string]int64 // a unix second
}

const maxSightings = 1024

func (s *sightings) saw(name string, until int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.until == nil || len(s.until) >= maxSightings {
		s.until = make(map[string]int64)
	}
	s.until[name] = until
}

func (s *sightings) forget(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.until, name)
}

func (s *sightings) held(name string, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.until[name] > now.Unix()
}
