package cron

import "time"

// last returns the last second until through at which s is due, counted from first, at which it
// is due. A schedule of every second may not have fired for years, so it does not step there.
func (s Spec) last(first, through int64, loc *time.Location) (int64, error) {
	if s.every > 0 {
		// Unsigned, since the span may be larger than the largest second.
		return first + int64(uint64(through-first)/uint64(s.every))*s.every, nil
	}
	at := s.lastMatch(first, through, loc)
	// Where clocks are set back a later start can have an earlier match, and the search may
	// have stopped before the end.
	for {
		next, err := s.Next(time.Unix(at, 0), loc)
		if err != nil || next.Unix() > through {
			return at, nil
		}
		at = next.Unix()
	}
}

// lastMatch searches for the latest second from which the next match is not after through.
func (s Spec) lastMatch(first, through int64, loc *time.Location) int64 {
	at := first
	for low, high := first, through; low < high; {
		middle := low + int64(uint64(high-low)/2)
		next, err := s.Next(time.Unix(middle, 0), loc)
		if err != nil || next.Unix() > through {
			high = middle
			continue
		}
		at, low = next.Unix(), middle+1
	}
	return at
}
