package cron

import "time"

// last returns the last second up to and including through at which s is due. s must be due at first. It doesn't step
// through every match, because a schedule that is due every second may not have fired for years.
func (s Spec) last(first, through int64, loc *time.Location) (int64, error) {
	if s.every > 0 {
		// The conversion to uint64 is needed because the difference may overflow an int64.
		return first + int64(uint64(through-first)/uint64(s.every))*s.every, nil
	}
	at := s.lastMatch(first, through, loc)
	// If clocks are set back, a later start can have an earlier match, so the search may have
	// stopped too early.
	for {
		next, err := s.Next(time.Unix(at, 0), loc)
		if err != nil || next.Unix() > through {
			return at, nil
		}
		at = next.Unix()
	}
}

// lastMatch searches for the latest second whose next match is not after through.
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
