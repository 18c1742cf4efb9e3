//go:build !linux

package watch

import "github.com/honker-go/honker/internal/wake"

// fileEvents does nothing on platforms other than Linux, where the watcher polls. kqueue would need a file
// descriptor, and closing any descriptor for a database drops SQLite's locks on it.
type fileEvents struct{}

func newFileEvents(Config) *fileEvents { return &fileEvents{} }
func (*fileEvents) C() <-chan struct{} { return nil }
func (*fileEvents) subscribe() bool    { return false }
func (*fileEvents) subscribed() bool   { return false }
func (*fileEvents) followsLog() bool   { return false }
func (*fileEvents) unsubscribe()       {}
func (*fileEvents) close()             {}

// signalFiles does nothing, because it depends on file events.
type signalFiles struct{}

func newSignalFiles(string) *signalFiles                  { return &signalFiles{} }
func (*signalFiles) raise(wake.Signals)                   {}
func (*signalFiles) C() <-chan struct{}                   { return nil }
func (*signalFiles) take() wake.Signals                   { return 0 }
func (*signalFiles) watch(*fileEvents, wake.Signals) bool { return false }
func (*signalFiles) unwatch(*fileEvents)                  {}
func (*signalFiles) close(*fileEvents)                    {}
