package relay

import (
	"fmt"
	"time"

	"github.com/honker-go/honker/internal/engine"
)

// Profile is a set of defaults of [Options].
type Profile int

// The profiles: the most messages of a batch, and the first and the longest pause after failures.
const (
	Balanced       Profile = iota // 10 messages; 1s to 1min
	LowLatency                    // 10 messages; 100ms to 10s
	HighThroughput                // 100 messages; 1s to 1min
	Relaxed                       // 10 messages; 5s to 5min
)

var profiles = [...]struct {
	batch               int
	retryBase, retryMax time.Duration
}{
	Balanced:       {10, time.Second, time.Minute},
	LowLatency:     {10, 100 * time.Millisecond, 10 * time.Second},
	HighThroughput: {100, time.Second, time.Minute},
	Relaxed:        {10, 5 * time.Second, 5 * time.Minute},
}

func (p Profile) check() error {
	if p < 0 || int(p) >= len(profiles) {
		return fmt.Errorf("%w: there is no profile %d", engine.ErrInvalid, p)
	}
	return nil
}

// applyProfile fills in what is zero. A RetryBase above the profile's RetryMax raises that, and
// a RetryMax below its RetryBase lowers that: only both given the wrong way round are an error.
func (o *Options) applyProfile() error {
	p := profiles[o.Profile]
	if o.RetryBase > o.RetryMax && o.RetryMax > 0 {
		return fmt.Errorf("%w: RetryBase %v is above RetryMax %v", engine.ErrInvalid, o.RetryBase, o.RetryMax)
	}
	o.Batch = or(o.Batch, p.batch)
	switch {
	case o.RetryBase == 0 && o.RetryMax == 0:
		o.RetryBase, o.RetryMax = p.retryBase, p.retryMax
	case o.RetryMax == 0:
		o.RetryMax = max(o.RetryBase, p.retryMax)
	case o.RetryBase == 0:
		o.RetryBase = min(o.RetryMax, p.retryBase)
	}
	return nil
}
