package relay

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/honker-go/honker/internal/engine"
)

// Profile is a set of defaults for [Options].
type Profile int

// The profiles, with their maximum messages per batch and their first and maximum pause after
// failures.
const (
	Balanced       Profile = iota // 10 messages; 1s to 1min
	LowLatency                    // 10 messages; 100ms to 10s
	HighThroughput                // 100 messages; 1s to 1min
	Relaxed                       // 10 messages; 5s to 5min
)

var profiles = [...]tuning{
	Balanced:       {10, time.Second, time.Minute},
	LowLatency:     {10, 100 * time.Millisecond, 10 * time.Second},
	HighThroughput: {100, time.Second, time.Minute},
	Relaxed:        {10, 5 * time.Second, 5 * time.Minute},
}

func (p Profile) check() error {
	if p < 0 || int(p) >= len(profiles) {
		return fmt.Errorf("%w: unknown Profile %d", engine.ErrInvalid, p)
	}
	return nil
}

// tuning holds the settings shared by profiles, relay options and handler options.
type tuning struct {
	batch               int
	retryBase, retryMax time.Duration
}

// over returns t with zero fields replaced by the defaults. If retryBase exceeds the default
// retryMax it also becomes the retryMax, and vice versa. over returns an error only if t sets both
// and retryBase is greater than retryMax.
func (t tuning) over(defaults tuning) (tuning, error) {
	err := errors.Join(notNegative("Batch", t.batch), engine.NotNegative("RetryBase", t.retryBase), engine.NotNegative("RetryMax", t.retryMax))
	if err != nil {
		return t, err
	}
	if t.retryBase > t.retryMax && t.retryMax > 0 {
		return t, fmt.Errorf("%w: RetryBase %v is above RetryMax %v", engine.ErrInvalid, t.retryBase, t.retryMax)
	}
	t.batch = cmp.Or(t.batch, defaults.batch)
	switch {
	case t.retryBase == 0 && t.retryMax == 0:
		t.retryBase, t.retryMax = defaults.retryBase, defaults.retryMax
	case t.retryMax == 0:
		t.retryMax = max(t.retryBase, defaults.retryMax)
	case t.retryBase == 0:
		t.retryBase = min(t.retryMax, defaults.retryBase)
	}
	return t, nil
}

// tuning returns the settings for queues without handler options.
func (o *Options) tuning() tuning { return tuning{o.Batch, o.RetryBase, o.RetryMax} }
