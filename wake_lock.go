package honker

import (
	"context"
	"time"

	"github.com/honker-go/honker/internal/store"
)

// askLocks returns the locks that are free, and has the watcher look again when another
// expires.
func (h *hub) askLocks(ctx context.Context, names []string, now time.Time) ([]string, error) {
	states, err := store.LockStates(ctx, h.db.own, names, now.Unix())
	var free []string
	for name, expires := range states {
		if expires == 0 {
			free = append(free, name)
		} else {
			h.expect(expires)
		}
	}
	return free, err
}
