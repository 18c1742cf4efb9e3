package lists

import (
	"context"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// List implements engine.OperatorStore.
func (s Operators) List(context.Context, row.Querier, row.ListRequest, time.Time) (row.ListPart, error) {
	return row.ListPart{}, engine.ErrUnsupported
}

// Scan implements engine.OperatorStore.
func (s Operators) Scan(context.Context, row.Querier, row.ListRequest, time.Time) (row.ScanPart, error) {
	return row.ScanPart{}, engine.ErrUnsupported
}

// Select implements engine.OperatorStore.
func (s Operators) Select(context.Context, row.Querier, row.JobSelect, int64, int, time.Time) ([]row.SelectedJob, error) {
	return nil, engine.ErrUnsupported
}

// Explain implements engine.OperatorStore.
func (s Operators) Explain(context.Context, row.Querier, []int64, row.ExplainRequest, time.Time) ([]row.Explained, error) {
	return nil, engine.ErrUnsupported
}

// ExplainQueue implements engine.OperatorStore.
func (s Operators) ExplainQueue(context.Context, row.Querier, string, row.ExplainRequest, time.Time) (row.ExplainedQueue, error) {
	return row.ExplainedQueue{}, engine.ErrUnsupported
}
