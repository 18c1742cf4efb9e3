//go:build !unix || darwin || solaris || illumos || aix

package sqlite

import "time"

// Pause blocks for about d.
func Pause(d time.Duration) { time.Sleep(d) }
