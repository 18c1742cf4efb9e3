// Package wallclock sets the clock of this process only, as an administrator, NTP or restoring a
// virtual machine would. It changes the wall clock reading of time.Now, but not its monotonic clock
// reading, timers, or the clocks of other processes.
package wallclock

import "time"

// Supported reports whether Set has an effect. It does on Linux with amd64 or arm64.
const Supported = supported

// Set sets the wall clock ahead of the system's by the given time, truncated to whole seconds. A
// negative time sets it back, and 0 resets it.
func Set(ahead time.Duration) { set(int64(ahead / time.Second)) }
