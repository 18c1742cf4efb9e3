//go:build !linux && !darwin

package presence

import (
	"time"

	"github.com/honker-go/honker/internal/row"
)

// identify distinguishes this process from others only by the time, which is all that these systems have in
// common.
func identify() row.Process { return row.Process{Start: time.Now().UnixNano()} }

// ask is never called, because the boot is unknown.
func ask(int, int64) Life { return Unknown }
