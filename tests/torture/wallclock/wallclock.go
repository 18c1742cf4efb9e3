// Package wallclock sets the clock of this process alone, as an administrator, NTP or a
// restored virtual machine would: time.Now says another time of day from then on, and its
// monotonic reading, timers and other processes know nothing of it.
package wallclock

import "time"

// Supported reports whether Set does anything here: on Linux with amd64 or arm64.
const Supported = supported

// Set makes the time of day differ from the machine's by so many whole seconds, which may
// be negative. 0 makes it right again.
func Set(ahead time.Duration) { set(int64(ahead / time.Second)) }
