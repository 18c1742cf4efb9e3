//go:build !linux

package watch

// fileEvents exist on Linux only. kqueue needs a descriptor on the file, and closing any
// descriptor of a database drops SQLite's locks on it. Elsewhere the watcher polls.
type fileEvents struct{}

func newFileEvents(Config) *fileEvents { return &fileEvents{} }
func (*fileEvents) C() <-chan struct{} { return nil }
func (*fileEvents) subscribe() bool    { return false }
func (*fileEvents) subscribed() bool   { return false }
func (*fileEvents) followsLog() bool   { return false }
func (*fileEvents) unsubscribe()       {}
func (*fileEvents) close()             {}

// signalFiles need the events of files, too.
type signalFiles struct{}

func newSignalFiles(string) *signalFiles             { return &signalFiles{} }
func (*signalFiles) raise(Signals)                   {}
func (*signalFiles) C() <-chan struct{}              { return nil }
func (*signalFiles) take() Signals                   { return 0 }
func (*signalFiles) watch(*fileEvents, Signals) bool { return false }
func (*signalFiles) unwatch(*fileEvents)             {}
func (*signalFiles) close(*fileEvents)               {}
