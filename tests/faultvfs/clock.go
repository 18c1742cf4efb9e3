//go:build unix

package faultvfs

import (
	"sync/atomic"
	"time"

	"modernc.org/libc"
	lib "modernc.org/sqlite/lib"
)

var ahead atomic.Int64 // in milliseconds

// Clock moves SQLite's clock ahead of the system's by d, which may be negative. It affects all
// connections of the process that are opened after the first call of New.
func Clock(d time.Duration) { ahead.Store(d.Milliseconds()) }

type timeFunc = func(tls *libc.TLS, vfs, out uintptr) int32

func xCurrentTimeInt64(tls *libc.TLS, _, out uintptr) int32 {
	code := function[timeFunc](at[lib.Tsqlite3_vfs](original).FxCurrentTimeInt64)(tls, original, out)
	*at[int64](out) += ahead.Load()
	return code
}
