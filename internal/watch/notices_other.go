//go:build !linux

package watch

// notices are for Linux: kqueue needs a descriptor on the file, and closing it would
// drop SQLite's locks. Elsewhere the poll serves.
type notices struct{}

func newNotices(Config) *notices    { return &notices{} }
func (*notices) C() <-chan struct{} { return nil }
func (*notices) armed() bool        { return false }
func (*notices) guarded() bool      { return false }
func (*notices) arm() bool          { return false }
func (*notices) drop()              {}
func (*notices) close()             {}
