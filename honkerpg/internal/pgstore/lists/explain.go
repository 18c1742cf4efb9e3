package lists

import (
	"context"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// Explain implements engine.OperatorStore.
func (s Operators) Explain(context.Context, row.Querier, []int64, row.ExplainRequest, time.Time) ([]row.Explained, error) {
	return nil, engine.ErrUnsupported
}

// ExplainQueue implements engine.OperatorStore.
func (s Operators) ExplainQueue(context.Context, row.Querier, string, row.ExplainRequest, time.Time) (row.ExplainedQueue, error) {
	return row.ExplainedQueue{}, engine.ErrUnsupported
}
