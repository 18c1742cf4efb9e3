package pgstore

import (
	"context"
	"fmt"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// noFile refuses to describe the database, which is not a file.
type noFile struct{}

var errNoFile = fmt.Errorf("%w: the database is not a file; use psql or the views pg_stat_user_tables and pg_indexes", engine.ErrUnsupported)

func (noFile) Definitions(context.Context, row.Querier) ([]row.Definition, error) {
	return nil, errNoFile
}

func (noFile) Describe(context.Context, row.Querier, int) (row.FileState, error) {
	return row.FileState{}, errNoFile
}

// problems finds nothing yet.
type problems struct{}

func (problems) LapsedSince(context.Context, row.Querier, string, time.Time) (time.Time, error) {
	return time.Time{}, nil
}

func (problems) Problems(context.Context, row.Querier, row.ProblemAges, time.Time) (row.Troubles, error) {
	return row.Troubles{}, nil
}

func (problems) Retains(context.Context, row.Querier) (int64, int64, error) { return 0, 0, nil }
