package jobs

import (
	"context"
	"fmt"
	"time"

	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// Limits is the store of limits. No queue has limits yet, because claims do not know them.
type Limits struct{ pgsql.Schema }

// All implements engine.LimitStore.
func (s Limits) All(context.Context, row.Querier) (map[string]row.QueueLimits, error) {
	return map[string]row.QueueLimits{}, nil
}

// Get implements engine.LimitStore.
func (s Limits) Get(context.Context, row.Querier, string) (row.QueueLimits, error) {
	return row.QueueLimits{}, nil
}

// Places implements engine.LimitStore.
func (s Limits) Places(context.Context, row.Querier, string, time.Time) (int64, error) { return 0, nil }

// Set implements engine.LimitStore. It refuses limits.
func (s Limits) Set(_ context.Context, _ row.Querier, _ string, l row.QueueLimits) (changed bool, err error) {
	if l != (row.QueueLimits{}) {
		return false, fmt.Errorf("%w: PostgreSQL has no limits of queues yet", engine.ErrUnsupported)
	}
	return false, nil
}
