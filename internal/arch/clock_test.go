package arch_test

import (
	"go/ast"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// clocked lists the packages that compare times with stored times. Such times must come from Engine.Now.
var clocked = []string{"", "admin", "dispatch", "flow", "inbox", "relay", "internal/engine", "internal/presence", "internal/worker", "internal/wake"}

// processClock lists the number of uses of the process's clock in the files of those packages: durations, deadlines of
// a ctx, and the dates of HTTP messages.
var processClock = map[string]int{
	"admin/problemserver.go":             1,
	"admin/scan.go":                      3,
	"dispatch/control.go":                2,
	"groupwork.go":                       5,
	"inbox/inbox.go":                     1,
	"inbox/receive.go":                   2,
	"internal/engine/chunks.go":          2,
	"internal/engine/look.go":            6,
	"internal/engine/tally.go":           5,
	"internal/presence/process_other.go": 1,
	"internal/wake/grace.go":             2,
	"internal/wake/notifier.go":          1,
	"internal/worker/lease.go":           6,
	"internal/worker/overlap.go":         2,
	"internal/worker/pool.go":            1,
	"internal/worker/run.go":             1,
	"internal/worker/settle.go":          1,
	"maintain.go":                        2,
	"member.go":                          3,
	"pipe.go":                            2,
	"progress.go":                        3,
	"relay/batch.go":                     1,
	"relay/http.go":                      2,
	"relay/processor.go":                 3,
	"relay/transaction.go":               1,
	"subscribe.go":                       4,
	"worker.go":                          2,
}

// TestProcessClock shows that no package has a new use of the process's clock. A new use must be for a duration or a
// deadline within the process, and is then counted in processClock.
func TestProcessClock(t *testing.T) {
	used := map[string]int{}
	for _, s := range sources(t) {
		if !s.test && !s.nested && slices.Contains(clocked, s.room) {
			if n := s.clockUses(); n > 0 {
				used[s.path] = n
			}
		}
	}
	for path := range used {
		require.Equal(t, processClock[path], used[path], "%s uses time.Now, time.Since or time.Until: stored times need Engine.Now", path)
	}
	require.Equal(t, processClock, used)
}

// TestProcessClock_Found shows that the rule sees calls and function values.
func TestProcessClock_Found(t *testing.T) {
	s := parse(t, "x.go", false, "package x\nimport \"time\"\nvar now = time.Now\nfunc f() { _ = time.Since(now()); _ = time.Second }")
	require.Equal(t, 2, s.clockUses())
}

// clockUses counts the uses of the functions of package time that read the process's clock.
func (s source) clockUses() (n int) {
	ast.Inspect(s.file, func(node ast.Node) bool {
		if f, ok := node.(*ast.SelectorExpr); ok {
			of, ok := f.X.(*ast.Ident)
			if ok && of.Name == "time" && slices.Contains([]string{"Now", "Since", "Until"}, f.Sel.Name) {
				n++
			}
		}
		return true
	})
	return n
}
