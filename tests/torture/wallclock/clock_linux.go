//go:build amd64 || arm64

package wallclock

import (
	"sync/atomic"
	_ "unsafe" // for go:linkname
)

const supported = true

// vdsoClockgettimeSym is the address of the function that the runtime calls to read the clocks.
//
//go:linkname vdsoClockgettimeSym runtime.vdsoClockgettimeSym
var vdsoClockgettimeSym uintptr

var ahead int64 // in seconds; read by clockGettime

// clockGettime implements clock_gettime with C's calling convention. It sets the wall clock ahead.
//
//lint:ignore U1000 entry passes it to the runtime
func clockGettime()

func entry() uintptr // address of clockGettime

func set(seconds int64) {
	atomic.StoreInt64(&ahead, seconds)
	atomic.StoreUintptr(&vdsoClockgettimeSym, entry())
}
