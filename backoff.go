package honker

import (
	"math"
	"math/rand/v2"
	"time"
)

// Backoff says how long a job that failed waits before its next attempt. attempt
// counts from 1; err is what the handler returned. The delay is rounded up to whole
// seconds; a negative one counts as zero.
type Backoff func(attempt int, err error) time.Duration

// Exponential doubles the delay with each attempt: base, 2·base, 4·base, up to max,
// each with up to 20 % more or less, so that jobs that failed together do not come
// back together.
func Exponential(base, max time.Duration) Backoff {
	return func(attempt int, _ error) time.Duration {
		return jitter(doubled(base, max, attempt))
	}
}

// doubled is base·2^(attempt-1), at most max, without an overflow.
func doubled(base, max time.Duration, attempt int) time.Duration {
	d := base
	for i := 1; i < attempt && d > 0 && d < max; i++ {
		d += min(d, max-d)
	}
	return min(d, max)
}

func jitter(d time.Duration) time.Duration {
	fifth := d / 5
	if fifth <= 0 {
		return d
	}
	low := d - fifth
	return low + rand.N(min(2*fifth, math.MaxInt64-1-low)+1)
}

// Constant waits d after each attempt.
func Constant(d time.Duration) Backoff {
	return func(int, error) time.Duration { return d }
}
